"""Sphinx's settings: ``sphinx-build -W docs OUTPUT``, with the extra ``[docs]`` installed."""

import torch_dpfts

project = "torch_dpfts"
author = "the torch_dpfts authors"
copyright = author
version = release = torch_dpfts.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinx.ext.napoleon"]
myst_enable_extensions = ["deflist", "dollarmath"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"torch_dpfts {version}"

autodoc_default_options = {"members": True, "show-inheritance": False}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
autodoc_preserve_defaults = True
add_module_names = False
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
