"""The command line, as ``python -m calipers``."""

import os
import sys

if __name__ == "__main__":
    # `python -m` imports from the working directory first, and the files that are compared there
    # may come from anywhere. The script `calipers` does not.
    if not sys.flags.safe_path and sys.path[0] == os.getcwd():
        _home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        if sys.path[0] != _home:
            del sys.path[0]
    from ._cli import main

    sys.exit(main())
