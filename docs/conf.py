"""How `make docs` builds the site: pages in Markdown, the API from docstrings, a gallery from examples/gallery.

Sphinx's source folder is the repository's root, so that a link between two pages works here and on a code host alike.
Nothing is read from a network, by the build or by a reader: equations are MathML, written at build time.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT), str(HERE)]
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the gallery's pictures do not depend on who builds them

from vmcr2 import __version__  # noqa: E402

project = "vmcr2"
author = "the vmcr2 authors"
copyright = "the vmcr2 authors, MIT licence"
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "_site.mathml",
    "_site.pages",
]
root_doc = "docs/index"
include_patterns = [
    *("*.md", "docs/**"),
    *("benchmarks/README.md", "experiments/README.md", "experiments/**/README.md"),
]
exclude_patterns = ["docs/_site", "docs/**.py", "docs/**.json", "docs/**.zip", "build", "runs", "sweeps", "**/.*"]
templates_path = [str(HERE / "_site/templates")]
highlight_language = "none"
nitpicky = True
# without a network there is no index of other libraries; our own names must be found
nitpick_ignore_regex = [(r"py:.*", r"(?!vmcr2\.).*"), (r"py:.*", r"vmcr2\..*\._.*")]

myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]
myst_heading_anchors = 4
# headings of included tables and old logs may skip a level; everything else is an error
suppress_warnings = ["myst.header", "config.cache"]

autosummary_generate = True
autosummary_ignore_module_all = False
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
python_maximum_signature_line_length = 80
add_module_names = False

sphinx_gallery_conf = {
    "examples_dirs": "examples/gallery",
    "gallery_dirs": "docs/gallery",
    "filename_pattern": r"/plot_",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "min_reported_time": 1e9,
    "write_computation_times": False,
    "image_scrapers": ("matplotlib", "_site.pages.returned_figures"),
    "ignore_repr_types": r"Figure",
    "reset_modules": ("matplotlib", "_site.pages.reset"),
    "within_subsection_order": "FileNameSortKey",
    "thumbnail_size": (400, 280),
}

html_theme = "pydata_sphinx_theme"
html_title = "vmcr2"
html_static_path = ["_site/static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_context = {"default_mode": "auto"}  # light or dark, as the browser asks; without it the theme complains
html_theme_options = {
    "show_prev_next": True,
    "navbar_align": "left",
    "header_links_before_dropdown": 8,
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "show_toc_level": 2,
}
