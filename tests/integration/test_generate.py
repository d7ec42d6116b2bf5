"""`harness generate` with the real client against a server that speaks the protocol, over loopback."""

from __future__ import annotations

import io
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from harness.cli import main
from tests.support.door_answers import RELU, fenced
from tests.support.paths import ROOT


def test_the_prompt_of_a_further_turn_reads_a_pipe(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("sys.stdin", io.StringIO("data race on line 7"))
    told = ["--problems", str(ROOT / "problems")]
    assert main(["prompt", "level1/19", "--feedback", "-", *told]) == 0
    assert "data race on line 7" in capsys.readouterr().out
    (tmp_path / "odd").write_bytes(b"\xff")
    assert main(["prompt", "level1/19", "--feedback", str(tmp_path / "odd"), *told]) == 2
    assert main(["prompt", "level1/19", "--feedback", str(tmp_path / "none"), *told]) == 3
    assert main(["prompt", "level1/19", "--template", "mine", *told]) == 2
    assert main(["prompt", "level1/999", *told]) == 2


pytest.importorskip("openai", reason="openai is not installed: pip install 'kernel-harness[generate]'")
pytestmark = pytest.mark.filterwarnings("default")

SECRET = "sk-a-secret-of-the-test"
RIGHT = fenced(RELU.format("return torch.relu(x)"))


class Served(BaseHTTPRequestHandler):
    """Fails with the codes in `server.failures` first, then answers."""

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append((self.headers["Authorization"], request))
        if self.server.failures:
            code = self.server.failures.pop(0)
            if code == 0:  # half an answer, then the connection ends
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", "1000")
                self.end_headers()
                self.wfile.write(b'{"id": "x", "choi')
                return
            self.reply(code, {"error": {"message": f"no: {self.headers['Authorization']}"}})
            return
        message = {"role": "assistant", "content": self.server.text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        body = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        if self.server.counts:
            body["usage"] = {"prompt_tokens": 1000, "completion_tokens": 500, "total_tokens": 1500}
        self.reply(200, body)

    def reply(self, code, body):
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Retry-After-Ms", "1")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@contextmanager
def endpoint(*, failures=(), text=RIGHT, counts=True):
    with ThreadingHTTPServer(("127.0.0.1", 0), Served) as server:
        server.requests, server.failures, server.text, server.counts = [], list(failures), text, counts
        threading.Thread(target=server.serve_forever, daemon=True).start()
        server.url = f"http://127.0.0.1:{server.server_port}/v1"
        yield server
        server.shutdown()


@pytest.fixture(autouse=True)
def secret(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def call(out, url, *more, problems=("level1/19",)):
    words = ["generate", *problems, "--model", "some/model", "--out", str(out), "--problems", str(ROOT / "problems")]
    return main([*words, *(["--base-url", url] if url else []), *more])


def test_samples_are_kept_counted_and_extracted(tmp_path, capsys):
    with endpoint() as server:
        assert call(tmp_path, server.url, "--samples", "3", "--price", "2,10", "--temperature", "0.5") == 0
    assert "3 answers, 3 solutions, 0 cut off; tokens: 3000 in, 1500 out; cost: 0.0210" in capsys.readouterr().out
    assert {key for key, _ in server.requests} == {f"Bearer {SECRET}"}
    assert all(
        request["temperature"] == 0.5 and "class Model" in request["messages"][0]["content"]
        for _, request in server.requests
    )
    solutions = sorted(path.name for path in (tmp_path / "solutions" / "some-model" / "level1").iterdir())
    assert solutions == [f"19_relu_sample{number}.py" for number in range(3)]
    assert (tmp_path / "answers" / "level_1_problem_19_sample_0.txt").read_text() == RIGHT
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or SECRET not in path.read_text()
    assert (
        main(
            [
                "extract",
                *map(str, (tmp_path / "answers").glob("*.txt")),
                "--out",
                str(tmp_path / "solutions"),
                "--author",
                "some-model",
                "--problems",
                str(ROOT / "problems"),
            ]
        )
        == 0
    )


def test_busy_and_failing_endpoints_are_asked_again(tmp_path):
    with endpoint(failures=[429, 500, 503, 0]) as server:
        assert call(tmp_path, server.url, "--parallel", "1") == 0
    assert len(server.requests) == 5


def test_a_run_goes_on_where_it_ended(tmp_path, capsys):
    with endpoint(failures=[500]) as server:
        assert call(tmp_path, server.url, "--samples", "3", "--parallel", "1", "--retries", "0") == 3
        said = capsys.readouterr().err
        assert "run the same command again" in said
        assert SECRET not in said
        asked = len(server.requests)
        assert call(tmp_path, server.url, "--samples", "3") == 0
        present = len(list((tmp_path / "answers").glob("*.txt")))
        assert present == 3
        (tmp_path / "answers" / "level_1_problem_19_sample_1.txt").unlink()  # as if killed between the two files
        (tmp_path / "answers" / "level_1_problem_19_sample_2.json").write_text('{"id": "x", "choi')
        before = len(server.requests)
        assert call(tmp_path, server.url, "--samples", "4") == 0
        assert len(server.requests) == before + 3
        assert asked < before


def test_other_settings_are_refused(tmp_path, capsys):
    with endpoint() as server:
        assert call(tmp_path, server.url) == 0
        assert call(tmp_path, server.url, "--temperature", "1") == 2
        assert "temperature was None, now 1.0" in capsys.readouterr().err
        assert call(tmp_path, server.url, "--template", "one_example") == 2
        assert "another prompt for level1/19" in capsys.readouterr().err
        assert call(tmp_path, server.url, problems=("level1/20",)) == 0
        (tmp_path / "answers" / "settings.json").write_text('{"model": "so')
        assert call(tmp_path, server.url) == 2
        assert "damaged" in capsys.readouterr().err


def test_what_can_not_work_is_said_at_once(tmp_path, capsys, monkeypatch):
    with endpoint(failures=[401]) as server:
        assert call(tmp_path / "a", server.url) == 2
    said = capsys.readouterr().err
    assert "refuses the request" in said
    assert SECRET not in said
    assert call(tmp_path / "b", server.url, "--retries", "0") == 3  # nobody listens there any more
    assert "can't be reached" in capsys.readouterr().err
    for url, part in (("localhost:8000", "must be an address"), ("http://me:word@host/v1", "no user")):
        assert call(tmp_path / "c", url) == 2
        assert part in capsys.readouterr().err
    assert call(tmp_path / "c", server.url, problems=("level1/999",)) == 2
    assert call(tmp_path / "c", server.url, "--price", "cheap") == 2
    assert call(tmp_path / "c", server.url, "--samples", "0") == 2
    monkeypatch.delenv("OPENAI_API_KEY")
    capsys.readouterr()
    assert call(tmp_path / "c", None) == 2
    assert "OPENAI_API_KEY is not set" in capsys.readouterr().err
    assert not (tmp_path / "c").exists()


def test_answers_without_solution_and_counts(tmp_path, capsys):
    with endpoint(text="I can't.", counts=False) as server:
        assert call(tmp_path, server.url) == 1
    taken = capsys.readouterr()
    assert "1 answers, 0 solutions" in taken.out
    assert "not counted" in taken.out
    assert "1 of 1 answers hold no solution" in taken.err
