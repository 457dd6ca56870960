"""Requests with pictures: right answers, and one sentence for everything that is wrong."""

from __future__ import annotations

import base64
import io
import shutil
import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from PIL import Image
from served import GOOD, TEST, encoded, form_of, png_of

from vmcr2.runs import Run, UserError, load_run
from vmcr2.serve import Limits, create_app


def sentence(answer: Any, status: int) -> str:
    """The error of an answer, which is one sentence for a person."""
    assert answer.status_code == status, answer.text
    (told,) = answer.json().values()
    assert isinstance(told, str)
    assert len(told) > 15
    assert "Traceback" not in told
    return told


def limited(run: Run, **limits: Any) -> TestClient:
    return TestClient(create_app(run, limits=Limits(**limits)))


def test_the_server_says_what_the_run_says(client: TestClient, digits_run: Run) -> None:
    files = [(f"{row}.png", png_of(TEST.images[row])) for row in range(60)]
    told = client.post("/predict?refuse=0.1&neighbors=3", files=form_of(*files))
    assert told.status_code == 200
    assert told.json()["run"] == "digits"
    answers = told.json()["answers"]
    assert [one["file"] for one in answers] == [name for name, _ in files]
    assert [one["class"] for one in answers] == digits_run.predict(TEST.images[:60], refuse=0.1)
    assert any(one["refused"] for one in answers)
    expected = digits_run.answers(TEST.images[:60])
    near = digits_run.neighbors(TEST.images[:60], 3)
    for row, one in enumerate(answers):
        two = expected.probabilities[row].topk(2)
        assert one["likeliest"] == digits_run.class_names[two.indices[0]]
        assert one["second"]["class"] == digits_run.class_names[two.indices[1]]
        assert one["probability"] == pytest.approx(two.values[0].item(), abs=1e-4)
        assert one["second"]["probability"] == pytest.approx(two.values[1].item(), abs=1e-4)
        assert one["novelty"] == pytest.approx(expected.novelty[row].item(), abs=1e-4)
        assert one["residual"] == pytest.approx(expected.residuals[row].min().item(), abs=1e-4)
        assert one["threshold"] == pytest.approx(digits_run.threshold(0.1), abs=1e-5)
        assert one["refused"] == (one["class"] is None)
        assert [own["cosine"] for own in one["neighbors"]] == pytest.approx(near.cosines[row].tolist(), abs=1e-3)
    assert near.pictures is not None
    assert torch.equal(picture_in(answers[0]["neighbors"][0]["picture"]), near.pictures[0, 0, 0])


def picture_in(uri: str) -> torch.Tensor:
    start = "data:image/png;base64,"
    assert uri.startswith(start)
    with Image.open(io.BytesIO(base64.b64decode(uri[len(start) :]))) as picture:
        return torch.from_numpy(np.array(picture))


def test_a_picture_may_be_the_whole_body(client: TestClient, digits_run: Run) -> None:
    (expected,) = digits_run.predict(TEST.images[:1])
    for kind in ("image/png", "application/octet-stream", "application/x-www-form-urlencoded", ""):
        told = client.post("/predict?refuse=0", content=GOOD, headers={"content-type": kind})
        assert told.status_code == 200, kind
        (answer,) = told.json()["answers"]
        assert (answer["file"], answer["class"], answer["refused"]) == (None, expected, None)
        assert "neighbors" not in answer


def test_any_size_mode_and_rotation(client: TestClient, digits_run: Run) -> None:
    large = Image.fromarray(TEST.images[0, 0].numpy()).resize((64, 64), Image.Resampling.NEAREST)
    turned = large.transpose(Image.Transpose.ROTATE_90)
    exif = Image.Exif()
    exif[0x0112] = 6  # turn it by 270 degrees
    files = [
        ("a.png", encoded(large.convert("RGBA"))),
        ("b.jpg", encoded(turned, "JPEG", exif=exif, quality=95)),
        ("c.webp", encoded(large.convert("RGB"), "WEBP", lossless=True)),
        ("d.gif", encoded(large, "GIF")),
    ]
    told = client.post("/predict?refuse=0", files=form_of(*files)).json()["answers"]
    assert [one["class"] for one in told] == digits_run.predict(large) * 4


def test_what_is_no_picture(client: TestClient) -> None:
    text = client.post("/predict", files=form_of(("cat.png", b"I am a cat.\n" * 100)))
    assert sentence(text, 415) == "cat.png: it is no picture of a known format"
    half = encoded(Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8)))[:2000]
    assert sentence(client.post("/predict", files=form_of(("half.png", half))), 422).startswith("half.png: ")
    assert "this run takes pictures, not JSON" in sentence(client.post("/predict", json=[{"a": 1}]), 415)
    assert "no picture" in sentence(client.post("/predict"), 400)
    assert "write -F file=@cat.png" in sentence(client.post("/predict", files={"file": (None, "cat.png")}), 400)
    broken_form = client.post("/predict", content=b"x", headers={"content-type": "multipart/form-data"})
    assert "the form cannot be read" in sentence(broken_form, 400)
    icon = encoded(Image.new("L", (16, 16)), "ICO")
    assert "no picture of a known format" in sentence(client.post("/predict", content=icon), 415)
    all_bad = client.post("/predict", files=form_of(("a.png", b"x"), ("b.png", b"y")))
    assert "a.png: " in sentence(all_bad, 415)
    assert "and 1 more" in sentence(all_bad, 415)


def claiming(width: int, height: int) -> bytes:
    """A PNG of some bytes whose header says that it is large."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


def test_a_picture_of_100_megapixels(client: TestClient) -> None:
    bomb = claiming(10_000, 10_000)
    told = sentence(client.post("/predict", files=form_of(("large.png", bomb))), 413)
    assert told == "large.png: it has more than 25 million pixels: make it smaller"
    huge = claiming(30_000, 30_000)  # Pillow itself refuses this one
    assert "more than 25 million pixels" in sentence(client.post("/predict", content=huge), 413)
    just = encoded(Image.new("L", (5000, 5000)))
    assert client.post("/predict", content=just).status_code == 200


def test_some_pictures_that_cannot_be_read(client: TestClient) -> None:
    files = form_of(("good.png", GOOD), ("bad.png", b"text"), ("too.png", GOOD))
    told = client.post("/predict", files=files)
    assert told.status_code == 207
    assert told.json()["error"] == "1 of 3 pictures cannot be read: see their answers"
    first, second, third = told.json()["answers"]
    assert second == {"file": "bad.png", "error": "bad.png: it is no picture of a known format", "status": 415}
    assert first["file"] == "good.png"
    assert {**first, "file": ""} == {**third, "file": ""}


def test_limits(digits_run: Run) -> None:
    with limited(digits_run, bytes=20_000, samples=3) as client:
        four = client.post("/predict", files=form_of(*[(f"{i}.png", GOOD) for i in range(4)]))
        assert sentence(four, 413) == "a request may have 3 pictures: send fewer at a time"
        long = sentence(client.post("/predict", content=GOOD + bytes(30_000)), 413)
        assert long == "a request may have 20000 bytes: send less at a time"
        unsaid = client.post("/predict", content=(bytes(1000) for _ in range(30)))  # without a length
        assert sentence(unsaid, 413) == long
        in_a_form = client.post("/predict", files=form_of(("a.png", GOOD + bytes(30_000))))
        assert sentence(in_a_form, 413) == long
        assert "connection" not in unsaid.headers, "all of it was read, and nothing waited for"
        held = client.app.state.service.held  # type: ignore[attr-defined]
        assert (held.bytes, held.requests) == (0, 0)
        assert client.post("/predict", files=form_of(*[(f"{i}.png", GOOD) for i in range(3)])).status_code == 200


def test_wrong_options(client: TestClient) -> None:
    def ask(options: str) -> str:
        return sentence(client.post(f"/predict?{options}", content=GOOD), 422)

    assert "refuse is 'often'" in ask("refuse=often")
    assert "less than 1" in ask("refuse=1")
    assert "neighbors is '-1'" in ask("neighbors=-1")
    assert "neighbors may be at most 50" in ask("neighbors=51")
    assert ask("neighbours=3") == "there is no option neighbours: did you mean neighbors?"
    assert "needs at least 99999 calibration samples" in ask("refuse=0.00001")


def test_other_paths_and_methods(client: TestClient) -> None:
    assert "there is nothing at /etc/passwd" in sentence(client.get("/etc/passwd"), 404)
    assert "/docs" in sentence(client.get("/docs"), 404)
    wrong = client.get("/predict")
    assert sentence(wrong, 405) == "/predict does not take GET: use POST"
    assert wrong.headers["allow"] == "POST"
    assert "use GET" in sentence(client.post("/health"), 405)
    assert client.head("/health").status_code == 200
    for path in ("/../vmcr2/__init__.py", "/page/../_app.py", "//etc/passwd", "/%2e%2e/_app.py"):
        assert client.get(path).status_code in (200, 404)
        assert "import" not in client.get(path).text
    assert "/predict" in client.get("/openapi.json").json()["paths"]


def test_a_run_without_calibration(plain_run: Run) -> None:
    with TestClient(create_app(plain_run)) as client:
        told = client.post("/predict", content=GOOD)
        assert told.status_code == 200
        (answer,) = told.json()["answers"]
        assert answer["class"] == answer["likeliest"] == plain_run.predict(TEST.images[:1])[0]
        unknown = ("probability", "refused", "threshold", "novelty")  # cross-entropy's novelty is a probability
        assert [answer[name] for name in unknown] == [None] * 4
        assert answer["second"]["probability"] is None
        (note,) = told.json()["notes"]
        assert "not calibrated" in note
        assert "cannot refuse" in sentence(client.post("/predict?refuse=0.1", content=GOOD), 422)
        assert "keeps no training samples" in sentence(client.post("/predict?neighbors=1", content=GOOD), 422)
        health = client.get("/health").json()
        assert (health["calibrated"], health["refusal"], health["neighbors"]) == (False, None, False)


def test_kept_samples_that_are_damaged_are_not_taken_for_none(digits_run: Run, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(digits_run.folder, tmp_path / "copy"))
    (copy / "kept_samples.safetensors").write_bytes(b"no")
    with pytest.raises(UserError, match=r"kept_samples\.safetensors is missing or damaged"):
        create_app(load_run(copy, device="cpu"))


def test_a_calibration_too_small_for_the_usual_rate(digits_run: Run) -> None:
    few = digits_run.calibrate(TEST.images[:10], TEST.labels[:10])
    with TestClient(create_app(few)) as client:
        told = client.post("/predict", content=GOOD).json()
        assert "refuses nothing" in told["notes"][0]
        assert told["answers"][0]["refused"] is None
        assert told["answers"][0]["probability"] is not None
        assert client.post("/predict?refuse=0.2", content=GOOD).json()["answers"][0]["refused"] in (True, False)
    with pytest.raises(ValueError, match="needs at least 19 calibration samples"):
        create_app(few, refuse=0.05)


def test_health_metrics_and_strange_hosts(digits_run: Run) -> None:
    with TestClient(create_app(digits_run, hosts={"testserver", "::1"})) as client:
        health = client.get("/health").json()
        assert health["status"] == "ok"
        assert health["classes"] == list("0123456789")
        assert health["shape"] == [1, 8, 8]
        assert health["refusal"]["threshold"] == pytest.approx(digits_run.threshold(0.05))
        noise = np.random.default_rng(0).integers(0, 256, (8, 8), dtype=np.uint8)
        client.post("/predict", files=form_of(("a.png", GOOD), ("b.png", encoded(Image.fromarray(noise)))))
        client.post("/predict", content=b"text")
        client.get("/a"), client.get("/b")
        lines = client.get("/metrics").text.splitlines()
        assert 'vmcr2_requests_total{path="/predict",status="200"} 1' in lines
        assert 'vmcr2_requests_total{path="/predict",status="415"} 1' in lines
        assert 'vmcr2_requests_total{path="other",status="404"} 2' in lines
        assert "vmcr2_samples_total 2" in lines
        assert "vmcr2_unreadable_total 1" in lines
        assert "vmcr2_batches_total 1" in lines
        assert "vmcr2_waiting_requests 0" in lines
        assert 'vmcr2_seconds_bucket{le="+Inf"} 1' in lines
        assert "vmcr2_seconds_count 1" in lines
        strange = client.get("/health", headers={"host": "evil.example:80"})
        assert "'evil.example'" in sentence(strange, 421)
        assert client.get("/health", headers={"host": "[::1]:8000"}).status_code == 200


def test_an_error_of_the_server_is_a_sentence(digits_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    app = create_app(digits_run)
    with TestClient(app, raise_server_exceptions=False) as client:
        monkeypatch.setattr(app.state.service.batcher, "_together", lambda jobs: 1 / 0)
        assert sentence(client.post("/predict", content=GOOD), 500).startswith("something went wrong in the server")
        assert 'status="500"} 1' in client.get("/metrics").text


def test_the_page_and_what_it_may_load(client: TestClient) -> None:
    for path, kind in (("/", "text/html"), ("/style.css", "text/css"), ("/page.js", "text/javascript")):
        found = client.get(path)
        assert found.status_code == 200
        assert found.headers["content-type"].startswith(kind)
        assert "default-src 'none'" in found.headers["content-security-policy"]
        assert "http" not in found.text.replace("http-equiv", "")


def test_names_are_data(digits_run: Run) -> None:
    """A file's name comes back as it was, and is never opened."""
    hostile = replace(digits_run, class_names=tuple(f"<script>alert({j})</script>" for j in range(10)))
    with TestClient(create_app(hostile)) as client:
        told = client.post("/predict?refuse=0", files=form_of(("../../etc/passwd", GOOD)))
        assert told.headers["content-type"] == "application/json"
        (answer,) = told.json()["answers"]
        assert answer["class"] in hostile.class_names
        assert answer["file"] == "../../etc/passwd"
