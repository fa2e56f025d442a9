"""Arrays in files of many formats, which are read without running what a file may hold."""
