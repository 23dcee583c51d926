"""How objects show themselves in a notebook: HTML and SVG without scripts, readable on light and on dark.

Nothing here waits or asks another process. Keys, addresses of memory and secrets are not shown. Text that came from
elsewhere, names of peers above all, is escaped.
"""

from zerohop.notebook.objects import html
from zerohop.notebook.timeline import Timeline, timeline

__all__ = ["Timeline", "html", "timeline"]
