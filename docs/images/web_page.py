"""Take the picture of the live page: `python docs/images/web_page.py`; needs Chromium."""

from __future__ import annotations

import io
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

FILE = Path(__file__).with_name("web-page.png")
COLORS = 255
BETWEEN = (
    "['s-decision', 's-running'].forEach((id) => { document.getElementById(id).hidden = true; })"
)
WAITS = """() => {
  const waits = parseInt(document.querySelector("#waits").textContent);
  return waits >= 12 && document.querySelector("#figures").textContent.includes(`pending${waits}`);
}"""


def main() -> None:
    """Start the demo, wait for a queue, and take the picture of overview, queue and timeline."""
    demo = [sys.executable, "-m", "hpctwin", "demo", "--serve", "--port", "0", "--speed", "60"]
    process = subprocess.Popen(demo, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        with sync_playwright() as playwright:
            path = shutil.which("chromium")
            browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1280, "height": 1500})
            page.goto(address)
            page.wait_for_function(WAITS, timeout=300_000)
            page.wait_for_timeout(10_000)
            page.wait_for_function(WAITS, timeout=300_000)
            page.evaluate(BETWEEN)
            page.wait_for_timeout(2_000)
            page.wait_for_function(WAITS, timeout=300_000)
            end = page.locator("#s-timeline").bounding_box()
            assert end is not None
            clip = {"x": 0, "y": 0, "width": 1280, "height": end["y"] + end["height"] + 14}
            picture = Image.open(io.BytesIO(page.screenshot(clip=clip)))
            browser.close()
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
    picture.convert("RGB").quantize(COLORS, kmeans=4).save(FILE, optimize=True)


if __name__ == "__main__":
    main()
