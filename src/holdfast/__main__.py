"""``python -m holdfast``: the command line, where ``holdfast`` itself is not on the path."""

import sys

from holdfast.cli.main import main

sys.exit(main(prog_name="holdfast"))
