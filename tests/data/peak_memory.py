"""The most memory that a process ever had, for code that tests run in one of its own."""

# Not ru_maxrss, which begins with the peak of the process that started this one.
PEAK = """
def peak():
    with open("/proc/self/status") as told:
        return 1024 * next(int(line.split()[1]) for line in told if line.startswith("VmHWM"))
"""
