"""Figures in tables have units, in JSON they are numbers."""

import json

from waltz_tools.cli.figures import Days, Seconds, SizeBytes, days_or_none, size_or_none


def test_figures_have_units_in_tables_only() -> None:
    sizes = (0, 1023, 1024, 1536, 5 << 30, 3 << 60)
    assert [str(SizeBytes(n)) for n in sizes] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 KiB",
        "5.0 GiB",
        "3,072.0 PiB",
    ]
    assert [str(Days(n)) for n in (0.05, 1.5, 2.0, 1234.5)] == ["1.2 h", "36.0 h", "2 days", "1,234 days"]
    assert [str(Seconds(n)) for n in (0.0, 119, 120, 7200)] == ["0 s", "119 s", "2 min", "2 h"]
    assert json.dumps([SizeBytes(1536), Days(1.5), Seconds(7.5)]) == "[1536, 1.5, 7.5]"
    assert (size_or_none(None), days_or_none(None)) == (None, None)
    assert (size_or_none(2.6), days_or_none(0.12345)) == (3, 0.123)
