project = "torch-goat"
author = copyright = "The torch-goat authors"
extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax", "myst_parser"]
html_theme = "furo"
html_title = "torch-goat"
autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_google_docstring = True
napoleon_custom_sections = [("Shapes", "params_style")]
exclude_patterns = ["images"]
myst_enable_extensions = ["dollarmath"]
