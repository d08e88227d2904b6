"""Opens the links that lead out of the site: `.ci/links.py SOURCES HTML REPORT`. Sphinx's `linkcheck` does it, with what
the build has read.

A link to a page that its host says is not there (404, 410) is an error. Other failures are counted: hosts that can't be
reached from here, that are slow, or that refuse programs.
"""

import collections
import concurrent.futures
import http.client
import json
import pathlib
import re
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

PROBE = 5  # seconds in which a host answers
LIMIT = 240  # seconds for all links


def answers(address: str) -> bool:
    """Whether a host answers at all."""
    request = urllib.request.Request(address, method="HEAD", headers={"User-Agent": "Mozilla/5.0"})
    try:
        urllib.request.urlopen(request, timeout=PROBE).close()
    except urllib.error.HTTPError:
        return True
    except (OSError, ValueError, http.client.HTTPException):
        return False
    return True


def hosts_of(folder: pathlib.Path) -> list[str]:
    """The hosts, with their scheme, that pages link to."""
    links = set()
    for page in folder.rglob("*.html"):
        links |= {*re.findall(r'<a [^>]*href="(https?://[^"#]+)', page.read_text())}
    return sorted({"://".join(urllib.parse.urlsplit(link)[:2]) for link in links})


def lines_of(report: pathlib.Path) -> list[dict[str, Any]]:
    """The report of Sphinx. If it was stopped, its last line may not be whole."""
    text = report.read_text() if report.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def main() -> int:
    """Returns 1 if a link leads to a page that its host no longer has."""
    sources, pages, folder = map(pathlib.Path, sys.argv[1:])
    hosts = hosts_of(pages)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        silent_hosts = [host for host, answered in zip(hosts, pool.map(answers, hosts)) if not answered]
    if len(silent_hosts) == len(hosts):
        print(f"skipped: links out of the site, because none of its {len(hosts)} hosts answers from here")
        return 0
    ignored = ",".join(f"{re.escape(host)}(/|$)" for host in silent_hosts)
    command = [sys.executable, "-m", "sphinx", "--quiet", "--builder", "linkcheck", "-d", str(pages / ".doctrees")]
    command += ["-D", f"linkcheck_ignore={ignored}"] if silent_hosts else []
    report = folder / "output.json"
    report.unlink(missing_ok=True)
    try:
        # It fails, and says so, where any link is broken. What that means is decided below.
        run = subprocess.run([*command, str(sources), str(folder)], timeout=LIMIT, capture_output=True, text=True)
        if not report.exists():
            print(run.stderr)
            return 1
    except subprocess.TimeoutExpired:
        print(f"links out of the site: stopped after {LIMIT} s")
    lines = lines_of(report)
    errors = {}
    failures = collections.Counter()
    for line in lines:
        if line["status"] == "broken" and re.search(r"\b(404|410)\b", line["info"]):
            errors[line["uri"]] = f"gone: {line['filename']}:{line['lineno']}: {line['uri']}: {line['info']}"
        elif line["status"] in ("broken", "timeout"):
            failures[urllib.parse.urlsplit(line["uri"]).netloc] += 1
    working = [line for line in lines if line["status"] in ("working", "redirected")]
    print("\n".join(errors.values()) or f"{len(working)} links out of the site lead somewhere")
    if silent_hosts or failures:
        names = [urllib.parse.urlsplit(host).netloc for host in silent_hosts]
        names += [f"{host} ({count})" for host, count in failures.items()]
        print(f"links out of the site that could not be opened from here: {', '.join(names)}")
    return bool(errors)


if __name__ == "__main__":
    sys.exit(main())
