"""The demo's picture is well-formed, has a cell for each carrier and hour, and tells early from late."""

import xml.etree.ElementTree as ET

from holdfast.cli.demo_picture import NONE, heat_map

SVG = "{http://www.w3.org/2000/svg}"


def test_each_carrier_and_hour_has_a_cell_of_its_own_colour() -> None:
    picture = ET.fromstring(heat_map({("UA", 5): 11.4, ("AA", 5): -20.0, ("UA", 6): 90.0}, "late & early"))
    fills = [each.attrib["fill"] for each in picture.iter(f"{SVG}rect")][1:]
    texts = [each.text for each in picture.iter(f"{SVG}text")]
    assert fills == ["#9f9fff", NONE, "#ffc8c8", "#ff4040"]
    assert texts[0] == "late & early"
    assert texts[2:] == ["5", "6", "AA", "-20", "UA", "11", "90"]
