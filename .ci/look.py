"""Looks at the built site in Chromium, without a window: `.ci/look.py FOLDER SCREENSHOTS`. Needs chromium, chromedriver
and selenium.

At the widths of a desktop and of a phone it opens all pages, and searches. No page is wider than the window, no text is
wider than its box, no picture is missing, no link leads nowhere, and scripts report no error.
"""

import functools
import html.parser
import http.server
import pathlib
import shutil
import sys
import tempfile
import threading
import urllib.parse

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

WINDOWS = {"desktop": (1280, 900), "phone": (400, 800)}
FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update
--disable-sync --hide-scrollbars"""
WRONG = """
const wrong = [];
if (document.documentElement.scrollWidth > innerWidth + 1) wrong.push('the page is wider than the window');
for (const x of document.images) if (!x.naturalWidth && x.loading !== 'lazy') wrong.push('missing picture ' + x.src);
const scrolls = e => e && (['auto', 'scroll', 'hidden'].includes(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
for (const x of document.querySelectorAll('article p, article td, article th, article li, article dt, article h1, article h2, article pre'))
  if (x.scrollWidth > x.clientWidth + 1 && x.clientWidth && !scrolls(x) && getComputedStyle(x).display !== 'inline')
    wrong.push('text wider than its box: ' + x.textContent.slice(0, 60));
return wrong;
"""


class Links(html.parser.HTMLParser):
    """The names that a page has, and the links and pictures that it needs."""

    def __init__(self, page: pathlib.Path):
        super().__init__()
        self.names: set[str] = set()
        self.needs: list[str] = []
        self.feed(page.read_text())

    def handle_starttag(self, tag, attrs):
        for key, value in attrs:
            if key in ("id", "name") and value:
                self.names.add(value)
            elif key in ("href", "src") and value:
                self.needs.append(value)


def broken(folder: pathlib.Path) -> list[str]:
    """The links inside the site that lead nowhere."""
    pages = {p.resolve(): Links(p) for p in folder.rglob("*.html")}
    wrong = []
    for page, links in pages.items():
        for link in links.needs:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else page
            if not target.exists() or (
                parts.fragment and target in pages and urllib.parse.unquote(parts.fragment) not in pages[target].names
            ):
                wrong.append(f"{page.relative_to(folder)}: {link}")
    return wrong


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files without a line for each."""

    def log_message(self, *_):
        pass


def main() -> int:
    """Returns 1 if something is wrong."""
    folder, shots = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    shots.mkdir(parents=True, exist_ok=True)
    pages = sorted(
        str(p.relative_to(folder)) for p in folder.rglob("*.html") if p.name not in ("search.html", "genindex.html")
    )
    wrong = [f"broken link: {link}" for link in broken(folder)]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    site = f"http://127.0.0.1:{server.server_port}"
    for window, (width, height) in WINDOWS.items():
        with tempfile.TemporaryDirectory() as profile:
            options = webdriver.ChromeOptions()
            for flag in [*FLAGS.split(), f"--user-data-dir={profile}"]:
                options.add_argument(flag)
            options.set_capability("goog:loggingPrefs", {"browser": "SEVERE"})
            browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
            try:
                # A window can't be as narrow as a phone, but what it shows can.
                browser.execute_cdp_cmd(
                    "Emulation.setDeviceMetricsOverride",
                    {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": window == "phone"},
                )
                for page in [*pages, "search.html?q=rotate"]:
                    browser.get(f"{site}/{page}")
                    if "search" in page:
                        results = lambda b: [
                            a.get_attribute("href") for a in b.find_elements(By.CSS_SELECTOR, "#search-results li a")
                        ]
                        WebDriverWait(browser, 20).until(results)
                        if not any("operators/rotate.html" in href for href in results(browser)):
                            wrong.append(f"{window} search: 'rotate' does not find its operator")
                    browser.save_screenshot(str(shots / f"{window}-{page.partition('.html')[0].replace('/', '-')}.png"))
                    wrong += [f"{window} {page}: {text}" for text in browser.execute_script(WRONG)]
                    wrong += [
                        f"{window} {page}: {entry['message']}"
                        for entry in browser.get_log("browser")
                        if "favicon" not in entry["message"]
                    ]
            finally:
                browser.quit()
    server.shutdown()
    print(
        "\n".join(wrong)
        or f"looked at {len(pages) + 1} pages in {len(WINDOWS)} windows; no broken link in {len([*folder.rglob('*.html')])} pages"
    )
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
