"""The demo's data: all flights, whole numbers whole, absent values null."""

import json
from itertools import islice
from pathlib import Path

import pytest

from holdfast.cli import demo_flights

HEADER = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,"
    "carrier,flight,tailnum,origin,dest,air_time,distance,hour,minute,time_hour"
)
FLOWN = "2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z"
CANCELLED = "2013,1,2,NA,900,NA,NA,1100,NA,NA,7,NA,LGA,NA,NA,400,9,0,2013-01-02T14:00:00Z"


def test_every_flight_is_a_record_with_its_tail_number_as_key() -> None:
    count = keyless = 0
    for chunk in demo_flights.chunks():
        assert len(chunk.keys) == len(chunk.values)
        count += len(chunk.values)
        keyless += chunk.keys.count(None)
    assert (count, keyless) == (demo_flights.FLIGHTS, 2512)


def test_the_first_flight_is_as_in_the_table() -> None:
    chunk = next(islice(demo_flights.chunks(chunk_rows=3), 1))
    assert chunk.keys == [b"N14228", b"N24211", b"N619AA"]
    record = json.loads(chunk.values[0])
    assert record["dep_time"] == 517 and isinstance(record["dep_time"], int)
    assert record["time_hour"] == "2013-01-01T10:00:00Z"
    assert list(record) == HEADER.split(",")


def test_absent_values_are_null_and_letters_stay_letters(tmp_path: Path) -> None:
    file = tmp_path / "flights.csv"
    file.write_text("\n".join((HEADER, FLOWN, CANCELLED)) + "\n")
    (chunk,) = demo_flights.chunks(str(file))
    assert chunk.keys == [b"N14228", None]
    cancelled = json.loads(chunk.values[1])
    assert [name for name, value in cancelled.items() if value is None] == [
        "dep_time",
        "dep_delay",
        "arr_time",
        "arr_delay",
        "tailnum",
        "air_time",
    ]
    assert (cancelled["carrier"], cancelled["dest"]) == ("NA", "NA")


def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(demo_flights.NoFlightsError, match=r"holdfast\[demo\]"):
        demo_flights.path()
