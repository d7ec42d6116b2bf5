"""Contracts of the doors with the real packages: fifty answers get the same status and reward through each.

Each test is skipped if its package is absent: the packages exclude each other. `make doors` runs them all.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec

import pytest

from harness import Harness, RewardPolicy
from harness.api.environments import score_answers
from tests.support.door_answers import answers
from tests.support.paths import ROOT

ANSWERS = answers()[: int(os.environ.get("DOOR_ANSWERS", "50"))]
# Rewards without times, which differ from one evaluation to the next: then they must be equal.
UNTIMED = {"speed_weight": 0.0}
POLICY = RewardPolicy(**UNTIMED)
PROBLEMS = str(ROOT / "problems")
# The packages warn of their own future; here warnings are errors.
pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.xdist_group("doors")]


def needs(package):
    """Skip before the fixtures evaluate anything."""
    return pytest.mark.skipif(find_spec(package) is None, reason=f"{package} is not installed: make doors")


@pytest.fixture(scope="module")
def harness():
    with Harness(device="host", problems=PROBLEMS) as made:
        yield made


@pytest.fixture(scope="module")
def direct(harness):
    """Status and reward of each answer from the core, one by one through `Harness.submit`."""
    problems, texts = zip(*ANSWERS, strict=True)
    steps = score_answers(harness, problems, texts, policy=POLICY)
    assert all(step.reward is not None for step in steps)
    return [(step.status.value, round(step.reward, 6)) for step in steps]


def agree(found, direct):
    """Compare, and keep the outcome for the page of results if a folder is named."""
    if folder := os.environ.get("DOOR_RESULTS"):
        name = os.environ["PYTEST_CURRENT_TEST"].partition("::test_")[2].partition(" ")[0]
        with open(os.path.join(folder, f"{name}.json"), "w", encoding="utf-8") as stream:
            json.dump(found, stream)
    for (status, value), (wanted, expected), (problem, answer) in zip(found, direct, ANSWERS, strict=True):
        assert (status, round(value, 6)) == (wanted, expected), (problem, answer)


@needs("trl")
def test_trl(harness, direct, tmp_path):
    import trl
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    from harness.api.environments.doors.rewards import trl_reward

    score = trl_reward(harness, POLICY)
    found = score([answer for _, answer in ANSWERS], [problem for problem, _ in ANSWERS], trainer_state=None)
    agree([(status, value) for (status, _), value in zip(direct, found, strict=True)], direct)
    talk = [[{"role": "assistant", "content": answer}] for _, answer in ANSWERS[-2:]]
    assert score(talk, [problem for problem, _ in ANSWERS[-2:]]) == found[-2:]

    calls = []

    def observed(completions, problem, **more):
        calls.append(list(problem))
        return score(completions, problem, **more)

    words = {word: number for number, word in enumerate(["<pad>", "<eos>", "write", "a", "kernel", "relu"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<eos>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>")
    model = GPT2LMHeadModel(GPT2Config(vocab_size=len(words), n_positions=64, n_embd=8, n_layer=1, n_head=1))
    trainer = trl.GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=observed,
        train_dataset=Dataset.from_dict({"prompt": ["write a kernel"] * 4, "problem": ["level1/19"] * 4}),
        args=trl.GRPOConfig(
            output_dir=str(tmp_path),
            max_steps=1,
            num_generations=2,
            per_device_train_batch_size=2,
            max_completion_length=4,
            report_to=[],
            use_cpu=True,
            bf16=False,
            save_strategy="no",
        ),
    )
    trainer.train()
    assert calls
    assert all(problem == "level1/19" for call in calls for problem in call)


@needs("verl")
def test_verl(direct):
    from omegaconf import OmegaConf
    from verl.trainer.ppo.reward import get_custom_reward_fn

    settings = {
        "path": "pkg://harness.api.environments.doors.rewards",
        "name": "compute_score",
        "reward_kwargs": {"device": "host", "problems": PROBLEMS, "policy": UNTIMED},
    }
    score = get_custom_reward_fn(OmegaConf.create({"reward": {"custom_reward_function": settings}}))
    found = [
        score(data_source="kernels", solution_str=answer, ground_truth=problem, extra_info={})
        for problem, answer in ANSWERS
    ]
    assert all(item["judged"] for item in found)
    agree([(item["status"], item["score"]) for item in found], direct)
    with pytest.raises(ValueError, match="unjudged"):
        score(data_source="", solution_str="", ground_truth="level1/19", extra_info={}, unjudged=0.5)


@needs("inspect_ai")
def test_inspect(harness, direct, tmp_path):
    import inspect_ai
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    from harness.api.environments.doors.inspect import EPISODE, kernel_task

    def evaluated(problems, outputs, **settings):
        given = [ModelOutput.from_content("mockllm/model", text) for text in outputs]
        for output in given:
            output.usage = ModelUsage()  # or it would fetch a tokenizer to count
        model = get_model("mockllm/model", custom_outputs=given)
        task = kernel_task(harness, problems, policy=POLICY, **settings)
        for number, sample in enumerate(task.dataset):
            sample.id = number  # a problem may stand there several times
        (log,) = inspect_ai.eval(task, model=model, max_samples=1, log_dir=str(tmp_path), display="none")
        assert log.status == "success", log.error
        return sorted(log.samples, key=lambda sample: sample.id)

    samples = evaluated([problem for problem, _ in ANSWERS], [answer for _, answer in ANSWERS])
    found = [
        (sample.metadata[EPISODE]["statuses"][-1], sample.scores["kernel_scorer"].as_float()) for sample in samples
    ]
    agree(found, direct)
    (sample,) = evaluated(["level1/19"], ["I can't.", answers()[25][1]], turns=2)
    assert sample.metadata[EPISODE]["statuses"] == ["no_model_new", "passed"]
    assert len([message for message in sample.messages if message.role == "user"]) == 2


@needs("openenv")
def test_openenv(harness, direct):
    import uvicorn
    from openenv import GenericEnvClient

    from harness.api.environments.doors.openenv import kernel_app

    server = uvicorn.Server(uvicorn.Config(kernel_app(harness, turns=2, policy=POLICY), port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    port = server.servers[0].sockets[0].getsockname()[1]
    found = []
    with GenericEnvClient(base_url=f"http://127.0.0.1:{port}", message_timeout_s=300).sync() as client:
        for problem, answer in ANSWERS:
            first = client.reset(problem=problem)
            assert "class Model" in first.observation["text"]
            result = client.step({"answer": answer})
            found.append((result.observation["status"], result.reward))
        client.reset(problem="level1/19")
        total = sum((client.step({"answer": "I can't."}).reward, client.step({"answer": answers()[25][1]}).reward))
        assert total > 0.2
        assert client.state()["step_count"] == 2
    server.should_exit = True
    thread.join(30)
    agree(found, direct)


class Endpoint(BaseHTTPRequestHandler):
    """A model behind the protocol of chat completions: gives the texts of `server.texts`, in order."""

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = {"role": "assistant", "content": self.server.texts.pop(0)}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        body = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
        data, kind = json.dumps(body).encode(), "application/json"
        if request.get("stream"):
            body |= {"object": "chat.completion.chunk", "choices": [choice | {"delta": choice.pop("message")}]}
            data, kind = f"data: {json.dumps(body)}\n\ndata: [DONE]\n\n".encode(), "text/event-stream"
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@needs("verifiers")
def test_verifiers(direct, monkeypatch, tmp_path):
    import verifiers.v1 as vf
    from verifiers.v1.clients import ModelContext

    from harness.api.environments.doors.verifiers import KernelEnv, KernelEnvConfig

    door = "from harness.api.environments.doors.verifiers import"
    (tmp_path / "kernels.py").write_text(f"{door} *\n{door} __all__\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("FAKE_KEY", "none")
    texts = [answer for _, answer in ANSWERS] + ["I can't.", answers()[25][1]]
    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        server.texts = texts
        threading.Thread(target=server.serve_forever, daemon=True).start()
        client = vf.EvalClientConfig(base_url=f"http://127.0.0.1:{server.server_port}/v1", api_key_var="FAKE_KEY")
        context = ModelContext(client=client, model="m", sampling=vf.SamplingConfig())

        async def played(problems, turns):
            chosen = {"problems": problems, "folder": PROBLEMS, "device": "host", "turns": turns, "policy": UNTIMED}
            config = KernelEnvConfig.model_validate(
                {
                    "taskset": {"id": "kernels", **chosen},
                    "player": {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}},
                }
            )
            env = vf.load_environment(config)
            assert isinstance(env, KernelEnv)
            async with env.serving():
                return [await env.run_episode(task, context) for task in env.taskset]

        episodes = asyncio.run(played([problem for problem, _ in ANSWERS], 1))
        assert [episode.errors for episode in episodes if not episode.ok] == []
        found = [(episode.traces[0].info["statuses"][-1], episode.traces[0].reward) for episode in episodes]
        (last,) = asyncio.run(played(["level1/19"], 2))
        server.shutdown()
    agree(found, direct)
    assert last.traces[0].info["statuses"] == ["no_model_new", "passed"]
