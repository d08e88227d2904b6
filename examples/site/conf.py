"""Settings of Sphinx. `build.py` copies this file to build/site/sources, and runs Sphinx in the repository's root, from
which modules are imported.
"""

import pathlib
import re

import jaxdali
from examples.site import figures

project = "jaxdali"
author = "The jaxdali developers"
release = version = jaxdali.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
html_theme = "furo"
pygments_dark_style = "github-dark"  # Furo's own underlines imports as if they were links
html_title = f"jaxdali {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = [("site.js", {"defer": "defer"})]
html_search_scorer = str(pathlib.Path(__file__).parent / "static" / "scorer.js")
html_show_copyright = False
html_show_sourcelink = False
exclude_patterns = ["*/examples", "*/recipes", "*/tests", "notebooks"]  # what pages read, and what is downloaded
default_role = "code"  # single backticks in docstrings
autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_use_rtype = False
napoleon_use_ivar = True
myst_enable_extensions = ["colon_fence", "deflist", "substitution"]
myst_substitutions = figures.substitutions()
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_execution_show_tb = True
nb_merge_streams = True
html_theme_options = {"navigation_with_keys": True}
# Code can be copied, but neither what it prints nor a prompt.
copybutton_selector = ":not(.output):not(.highlight-text) > div.highlight > pre"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
# Links out of the site: hosts may be slow, or refuse programs. `.ci/links.py` reads the report.
linkcheck_anchors = False
linkcheck_retries = 1
linkcheck_timeout = 5
linkcheck_workers = 16


def break_names(app, pagename, templatename, context, doctree):
    """Lets a heading such as `fn.decoders.image_random_crop` break between its words."""
    if "body" in context:
        context["body"] = re.sub(
            r"(?<=<h1>)fn\.[\w.]+", lambda name: re.sub(r"(?<=[._])", "<wbr>", name[0]), context["body"]
        )


def keep_text(app, what, name, obj, options, lines):
    """Begins the docstring of a property with an empty comment, or Napoleon takes what stands before its first colon for
    a type.
    """
    if what in ("property", "attribute"):
        lines[:0] = ["..", ""]


def setup(app):
    app.connect("autodoc-process-docstring", keep_text, priority=400)
    app.connect("html-page-context", break_names)
