"""Looks at the built site in Chromium, without a window: `.ci/look.py FOLDER SCREENSHOTS`. Needs chromium, chromedriver
and selenium.

It opens the pages at the widths of a desktop and of a phone, light and dark, and searches. Pages of operators, which
are made alike, are opened light, and a few of them also dark. No page is wider than the window; no text is cut;
arguments of operators are on the screen of a phone; code of guides and examples fits a desktop, and can be copied; text
and pictures can be seen on their background; no picture is missing; no link inside the site leads nowhere; scripts
report no error; each search finds its page.
"""

import concurrent.futures
import functools
import html.parser
import http.server
import pathlib
import re
import shutil
import sys
import tempfile
import threading
import time
import urllib.parse

WINDOWS = {"desktop": (1280, 900), "phone": (400, 800)}
SCHEMES = ("light", "dark")

# A query, the pages one of which it must find, and among how many first results.
SEARCHES = [
    ("install", ("install",), 1),
    ("installation", ("install",), 1),
    ("train", ("guides/training",), 1),
    ("training loop", ("guides/training",), 3),
    ("torchvision", ("guides/names",), 1),
    ("torchvision", ("guides/evaluation",), 3),
    ("albumentations", ("guides/names",), 1),
    ("mixup", ("guides/mixup",), 1),
    ("cutmix", ("guides/mixup",), 1),
    ("jit", ("guides/functions", "reference/dynamic"), 1),
    ("dynamic", ("guides/functions", "reference/dynamic"), 1),
    ("checkpoint", ("guides/checkpoints",), 1),
    ("resume", ("guides/checkpoints",), 1),
    ("own dataset", ("guides/training",), 3),
    ("labels shape", ("guides/training",), 3),
    ("uint8 or float", ("guides/training",), 3),
    ("random crop", ("operators/random_resized_crop", "operators/decoders.image_random_crop"), 1),
    ("slow", ("guides/speed",), 3),
    ("gpu", ("guides/gpu",), 1),
    ("cuda", ("guides/gpu", "install"), 1),
    ("tpu", ("guides/tpu_hosts",), 1),
    ("hugging face", ("guides/huggingface",), 1),
    ("webdataset", ("guides/webdataset",), 1),
    ("diffusion", ("guides/diffusion",), 1),
    ("grain", ("loaders", "guides/from_tfdata_grain"), 1),
    ("dataloader", ("guides/torch_dataloader", "loaders"), 1),
    ("performance", ("performance",), 1),
    ("rotate", ("operators/rotate",), 1),
    ("fn.rotate", ("operators/rotate",), 1),
    ("decoders.image", ("operators/decoders.image",), 1),
    ("coco", ("operators/readers.coco", "guides/detection"), 1),
    ("SampleError", ("reference/errors",), 1),
    ("benchmark", ("reference/commands/benchmark",), 1),
]

FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update
--disable-sync --hide-scrollbars"""

# Code on these pages needs no scrolling on a desktop.
WHOLE_CODE = re.compile(r"(guides|examples)/|(index|install|loaders|performance)\.html")

WRONG = pathlib.Path(__file__).with_suffix(".js").read_text()

RESULTS = "return [...document.querySelectorAll('#search-results li a')].map(x => x.href)"


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


def start_browser(window: str, scheme: str, profile: str):
    """Chromium with a window of this kind, and this colour scheme of the system."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for flag in [*FLAGS.split(), f"--user-data-dir={profile}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "SEVERE"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    # A window can't be as narrow as a phone, but what it shows can.
    width, height = WINDOWS[window]
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": window == "phone"},
    )
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    return browser


def photograph(browser, file: pathlib.Path) -> None:
    """Writes a picture of the window. Shortly after a page was opened, Chromium now and then refuses one."""
    from selenium.common.exceptions import TimeoutException

    for _ in range(10):
        try:
            browser.save_screenshot(str(file))
            return
        except TimeoutException:
            time.sleep(0.3)
    raise TimeoutError(f"no picture for {file}")


def look(site: str, pages: list[str], shots: pathlib.Path, window: str, scheme: str) -> list[str]:
    """Opens pages in a window, and returns what is wrong."""
    from selenium.webdriver.support.ui import WebDriverWait

    wrong = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = start_browser(window, scheme, profile)
        try:
            for page in pages:
                browser.get(f"{site}/{page}")
                if page.startswith("search.html"):
                    WebDriverWait(browser, 20).until(lambda b: b.execute_script(RESULTS))
                name = page.partition(".html")[0].replace("/", "-")
                photograph(browser, shots / f"{window}-{scheme}-{name}.png")
                faults = browser.execute_script(
                    WRONG, window == "phone", scheme == "dark", bool(WHOLE_CODE.match(page))
                )
                faults += [x["message"] for x in browser.get_log("browser") if "favicon" not in x["message"]]
                wrong += [f"{window}, {scheme}, {page}: {text}" for text in faults]
        finally:
            browser.quit()
    return wrong


def search(site: str) -> list[str]:
    """Searches, and returns which don't find their page."""
    from selenium.common.exceptions import TimeoutException
    from selenium.webdriver.support.ui import WebDriverWait

    wrong = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = start_browser("desktop", "light", profile)
        try:
            for query, expected, among in SEARCHES:
                browser.get(f"{site}/search.html?q={urllib.parse.quote(query)}")
                try:
                    links = WebDriverWait(browser, 20).until(
                        lambda b, among=among: (
                            (r := b.execute_script(RESULTS))
                            and (len({*map(page_of, r)}) > among + 2 or is_finished(b))
                            and r
                        )
                    )
                except TimeoutException:
                    links = []
                pages = list(dict.fromkeys(map(page_of, links)))
                if not {*expected} & {*pages[:among]}:
                    wrong.append(
                        f"search {query!r} finds {', '.join(pages[:5])}; one of the first {among} "
                        f"should be {' or '.join(expected)}"
                    )
        finally:
            browser.quit()
    return wrong


def page_of(link: str) -> str:
    """The page that a link leads to, without its site, ending and place."""
    return urllib.parse.unquote(urllib.parse.urlsplit(link).path).strip("/").removesuffix(".html")


def is_finished(browser) -> bool:
    """Whether the search has shown all of its results."""
    return browser.execute_script("return !Search._pulse_status && /finished|found/i.test(Search.status?.textContent)")


def main() -> int:
    """Returns 1 if something is wrong."""
    folder, shots = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    shots.mkdir(parents=True, exist_ok=True)
    pages = sorted(
        str(p.relative_to(folder)) for p in folder.rglob("*.html") if p.name not in ("search.html", "genindex.html")
    )
    pages = [p for p in pages if not p.startswith("_")] + ["search.html?q=rotate"]
    # The list of all operators, that of one group, and one operator stand for the others when it is dark.
    dark = [p for p in pages if not re.match(r"operators/(?!(index|images|rotate)\.html)", p)]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    site = f"http://127.0.0.1:{server.server_port}"
    of_scheme = {"light": pages, "dark": dark}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(look, site, of_scheme[s], shots, w, s) for s in SCHEMES for w in WINDOWS]
        jobs.append(pool.submit(search, site))
        wrong = [f"broken link: {link}" for link in broken(folder)] + [text for job in jobs for text in job.result()]
    server.shutdown()
    print(
        "\n".join(wrong)
        or f"looked at {len(pages)} pages, {len(dark)} of them also dark, in {len(WINDOWS)} windows; "
        f"{len(SEARCHES)} searches found their pages; no link inside the site is broken"
    )
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
