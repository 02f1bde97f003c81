"""Writes docs/authorization.md again with the table of rights as it is now; what brokers answered is kept.

Usage: authorization_page.py. After a change of what is answered: HOLDFAST_REWRITE=1 pytest tests/rights.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.rights.page import PAGE, recorded, rows_of, static

if __name__ == "__main__":
    PAGE.write_text(static(rows_of(PAGE.read_text()), recorded()))
    print(f"wrote {PAGE}")
