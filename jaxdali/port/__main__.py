"""``python -m jaxdali.port``."""

import signal
import sys

from ._command import main

if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # the reader of a pipe may stop early, as `head` does
    sys.exit(main())
