"""Dependencies point one way: the import graph has no cycle between rooms, and nobody reaches upwards."""

from __future__ import annotations

from import_graph import LAYERS, edges, main


def test_no_room_imports_one_above_it(capsys):
    assert main([]) == 0, capsys.readouterr().out


def test_every_room_has_a_layer():
    rooms = {room for pair in edges() for room in pair}
    assert rooms <= {room for layer in LAYERS for room in layer}


def test_privacy_imports_none_of_the_others():
    assert {there for here, there in edges() if here == "privacy"} <= {"errors", "files"}
