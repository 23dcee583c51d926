"""The display of objects in a notebook: HTML and SVG without scripts, readable on light and dark backgrounds.

Nothing here waits or queries another process. Keys, memory addresses and secrets are not shown. Text from
elsewhere, above all names of peers, is escaped.
"""

from zerohop.notebook.objects import html
from zerohop.notebook.timeline import Timeline, timeline

__all__ = ["Timeline", "html", "timeline"]
