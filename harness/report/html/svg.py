"""Adapt matplotlib's SVG for an HTML page, and draw the samples of one solution."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence

from markupsafe import Markup

SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"

STRIP_WIDTH, STRIP_HEIGHT = 600, 46
MAX_DOTS = 400
"""Most samples of one side that are drawn; of more, every n-th is drawn."""


def inline(data: bytes, prefix: str, label: str) -> Markup:
    """Convert an SVG file to an element of an HTML page, labelled for screen readers.

    `prefix` makes its ids unique. Links stay out of the tab order, because the tables have the same links with names.
    """
    root = ET.fromstring(data)
    for element in list(root.iter()):
        if held := element.attrib.pop("id", None):
            element.set("id", prefix + held)
        link = element.attrib.pop(f"{{{XLINK}}}href", None)
        if element.tag == f"{{{SVG}}}a":
            element.attrib = {"href": link or "#", "tabindex": "-1"}
        elif link is not None:
            element.set("href", f"#{prefix}{link[1:]}" if link.startswith("#") else link)
        for name, value in element.attrib.items():
            if "url(#" in value:
                element.set(name, re.sub(r"url\(#", f"url(#{prefix}", value))
    for child in list(root):
        if child.tag.endswith("metadata"):
            root.remove(child)
    root.attrib.update({"role": "img", "aria-label": label})
    ET.register_namespace("", SVG)
    return Markup(ET.tostring(root, encoding="unicode"))


def strip(reference_s: Sequence[float], solution_s: Sequence[float]) -> Markup:
    """Draw samples of the reference and of the solution as dots on a log time axis.

    Empty without samples. One path for each side keeps a page with thousands of solutions small.
    """
    sides = [[value for value in side if math.isfinite(value) and value > 0] for side in (reference_s, solution_s)]
    values = [value for side in sides for value in side]
    if not values:
        return Markup("")
    low, high = math.log(min(values)) - 0.02, math.log(max(values)) + 0.02
    paths = []
    for name, side, y in (("reference", sides[0], 13), ("solution", sides[1], 33)):
        shown = side[:: max(1, math.ceil(len(side) / MAX_DOTS))]
        places = [round(4 + (STRIP_WIDTH - 8) * (math.log(value) - low) / (high - low)) for value in shown]
        # Dots at one place would look like one dot, so they are spread in height.
        dots = "".join(f"M{x} {y + (index % 5 - 2) * 3}h0" for index, x in enumerate(places))
        paths.append(f'<path class="{name}" d="{dots}"/>')
    label = "samples of the reference, above, and of the solution, on a log axis of time"
    return Markup(
        f'<svg class="strip" viewBox="0 0 {STRIP_WIDTH} {STRIP_HEIGHT}" role="img" aria-label="{label}">'
        f"{''.join(paths)}</svg>"
    )
