"""Settings of Sphinx. `build.py` copies this folder to build/site/sources and runs Sphinx there."""

import jaxdali

project = "jaxdali"
author = "The jaxdali developers"
release = version = jaxdali.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = f"jaxdali {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_copyright = False
html_show_sourcelink = False
exclude_patterns = ["guides/examples", "guides/recipes", "guides/tests"]  # what guides read
default_role = "code"  # single backticks in docstrings
autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_use_rtype = False
napoleon_use_ivar = True
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_execution_show_tb = True
nb_merge_streams = True
html_theme_options = {"navigation_with_keys": True}
