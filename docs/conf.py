"""How Sphinx builds the documentation: ``make docs`` writes it to build/docs."""

import calipers

project = "calipers"
author = "The calipers maintainers"
copyright = author
release = version = calipers.__version__

extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc", "sphinx.ext.autosummary"]
exclude_patterns = ["figures"]
templates_path = ["_templates"]
default_role = "autolink"  # in docstrings, `name` is a link if calipers has such a name
nitpicky = True
smartquotes = False  # f'(x) is no quotation
# Names of other libraries: a link would need the network.
nitpick_ignore = [
    ("py:obj", name)
    for name in (
        "math.fsum",
        "numba.cuda.jit",
        "numpy.all",
        "numpy.allclose",
        "numpy.matmul",
        "numpy.savez",
        "numpy.show_config",
        "numpy.testing.assert_allclose",
        "torch.testing.assert_close",
    )
]

myst_heading_anchors = 3

# The fields of a named tuple are documented as attributes.
autodoc_default_options = {
    "members": True,
    "inherited-members": "BaseException, RuntimeError, tuple",  # of calipers' bases only
    "exclude-members": "atol, rtol",
}
add_module_names = False  # the title of a page has the full name
toc_object_entries = False
maximum_signature_line_length = 88
autodoc_typehints = "none"  # numpydoc's Parameters say it in words
numpydoc_class_members_toctree = False
numpydoc_show_class_members = False

html_theme = "furo"
html_title = f"calipers {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = html_show_sourcelink = False
