"""
Draw docs/figures/notebook.png: a report as browsers show it on a light and on a dark page.

``python docs/shown/notebook.py`` needs chromium.
"""

import subprocess
import tempfile
from pathlib import Path

import numpy as np

import calipers

PAGE = """
<body style="margin:0;display:flex;font:14px sans-serif">
<div style="padding:12px;width:680px;background:#fff;color:#111">{0}</div>
<div style="padding:12px;width:680px;background:#16181d;color:#ddd">{0}</div>
</body>
"""
CELL = (
    '<div style="font:13px monospace;border:1px solid #8886;padding:8px;margin-bottom:8px">'
    "calipers.compare(fast, slow)</div>"
)


def main():
    rng = np.random.default_rng(0)
    slow = rng.normal(size=(64, 48)).astype("float32")
    fast = slow.copy()
    fast[16:32, 32:48] *= np.float32(1.001)
    fast[40, 7] = np.nan
    html = CELL + calipers.compare(fast, slow)._repr_html_()
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "page.html")
        page.write_text(PAGE.format(html))
        picture = Path(__file__).parents[1] / "figures" / "notebook.png"
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1408,628"]
        command = ["chromium", *options, f"--screenshot={picture}", page.as_uri()]
        subprocess.run(command, check=True, capture_output=True)


if __name__ == "__main__":
    main()
