#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: optional
"""The connector for vLLM under vLLM's own scheduler and cache manager, on a CPU and without a model.

vLLM makes it of its configuration, by its name. What a model would compute are numbers that tell the token.
"""
import importlib.util
import json
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "connector_vllm"), os.path.join(HERE, "..", "integration")]
import remote  # noqa: E402
import standin  # noqa: E402
import te_proc as te  # noqa: E402

BLOCK, BLOCKS, TOKENS = 16, 40, 50
MODEL = {"architectures": ["OPTForCausalLM"], "model_type": "opt", "hidden_size": 64, "num_attention_heads": 4,
         "num_hidden_layers": 2, "ffn_dim": 128, "vocab_size": 512, "max_position_embeddings": 256}


def setUpModule():
    for package in ("vllm", "torch"):
        if importlib.util.find_spec(package) is None:
            te.skip(f"{package} is not installed")
    standin.found()
    remote.prepare()
    os.environ.update(VLLM_LOGGING_LEVEL="ERROR", HF_HUB_OFFLINE="1", VLLM_TARGET_DEVICE="cpu")
    sys.path[:0] = [standin.CONNECTOR, os.path.join(te.SRC, "bindings", "python")]
    try:
        import vllm.v1.core.sched.scheduler  # noqa: F401
    except ImportError as e:
        te.skip(f"vllm is installed, and not all that it needs: {e}")


class Side:
    """A server: vLLM's scheduler, and our worker in vLLM's order of calls."""

    def __init__(self, model, policy, ahead):
        import torch
        from transfer_engine_vllm import TransferEngineConnector
        from vllm.config import CacheConfig, DeviceConfig, KVTransferConfig, ModelConfig, SchedulerConfig, VllmConfig
        from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
        from vllm.v1.core.sched.async_scheduler import AsyncScheduler
        from vllm.v1.core.sched.scheduler import Scheduler
        from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
        from vllm.v1.structured_output import StructuredOutputManager
        options = {"host": "127.0.0.1", "peers": ["127.0.0.1"],
                   **{f"{name}_s": 3600 for name in ("hold", "lease", "lost", "write", "fence", "settle")}}
        config = VllmConfig(
            model_config=ModelConfig(model=model, skip_tokenizer_init=True, dtype="float16", enforce_eager=True),
            scheduler_config=SchedulerConfig(max_num_seqs=8, max_num_batched_tokens=32, max_model_len=128,
                                             enable_chunked_prefill=True, is_encoder_decoder=False, async_scheduling=ahead),
            cache_config=CacheConfig(block_size=BLOCK, enable_prefix_caching=True),
            kv_transfer_config=KVTransferConfig(kv_connector="TransferEngineConnector", kv_role="kv_both",
                                                kv_connector_module_path="transfer_engine_vllm",
                                                kv_connector_extra_config=options, kv_load_failure_policy=policy),
            device_config=DeviceConfig("cpu"))
        config.cache_config.num_gpu_blocks = BLOCKS
        spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32)
        caches = KVCacheConfig(num_blocks=BLOCKS, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["a", "b"], spec)])
        kind = AsyncScheduler if ahead else Scheduler
        self.scheduler = kind(vllm_config=config, kv_cache_config=caches, log_stats=False, block_size=BLOCK,
                              structured_output_manager=StructuredOutputManager(config))
        self.worker = TransferEngineConnector(config, KVConnectorRole.WORKER, caches)
        self.caches = {layer: torch.zeros(2, BLOCKS, BLOCK, 1) for layer in "ab"}
        self.worker.register_kv_caches(self.caches)
        self.scheduler.connector.set_xfer_handshake_metadata_pp_aware({(0, 0): self.worker.get_handshake_metadata()})
        self.answers, self.planned, self.ahead = {}, [], ahead

    def add(self, name, params, tokens=8):
        from vllm import SamplingParams
        from vllm.v1.request import Request
        extra = {"kv_transfer_params": params} if params else None
        sampling = SamplingParams(max_tokens=tokens, ignore_eos=True, extra_args=extra)
        self.scheduler.add_request(Request(name, list(range(1, TOKENS + 1)), sampling, None))

    def ids(self, name):
        return self.scheduler.kv_cache_manager.get_block_ids(name)[0]

    def schedule(self):
        """A step, and of each request in it the first token, how many, and where."""
        output, requests = self.scheduler.schedule(), self.scheduler.requests
        work = [(name, requests[name].num_computed_tokens - count, count, self.ids(name))
                for name, count in output.num_scheduled_tokens.items()]
        self.planned.append((output, work))

    def compute(self, work):
        for _, begin, count, ids in work:
            for token in range(begin, begin + count):
                for layer, cache in self.caches.items():
                    cache[:, ids[token // BLOCK], token % BLOCK] = 1000 * ord(layer) + token

    def step(self):
        """Schedules a step, and runs one: where it is scheduled ahead, the one before that."""
        self.schedule()
        if len(self.planned) > self.ahead:
            self.run(*self.planned.pop(0))
        return self

    def run(self, output, work):
        from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
        worker = self.worker
        worker.handle_preemptions(output.kv_connector_metadata)
        worker.bind_connector_metadata(output.kv_connector_metadata)
        self.compute(work)
        for layer in self.caches if work else ():
            worker.save_kv_layer(layer, self.caches[layer], None)
        worker.start_load_kv(None)
        worker.wait_for_save()
        results = worker.get_transfer_results(output.finished_req_ids)
        told = KVConnectorOutput(finished_sending=results.finished_sending, finished_recving=results.finished_recving,
                                 failed_recving=results.failed_recving,
                                 kv_connector_worker_meta=worker.build_connector_worker_meta())
        worker.clear_connector_metadata()
        done = [[7] if begin + count >= TOKENS else [] for _, begin, count, _ in work]
        ran = ModelRunnerOutput([w[0] for w in work], {w[0]: i for i, w in enumerate(work)}, done, kv_connector_output=told)
        for outputs in self.scheduler.update_from_output(output, ran).values():
            for answer in outputs.outputs:
                if answer.finish_reason is not None:
                    self.answers[answer.request_id] = (str(answer.finish_reason), answer.kv_transfer_params)

    def until(self, condition, what):
        te.until(lambda: condition(self.step()), what)

    def free(self):
        return self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()

    def wrong(self, name):
        """Tokens of a prompt that are not there; the last one decode computes itself."""
        ids = self.ids(name)
        return sum(bool((cache[:, ids[token // BLOCK], token % BLOCK] != 1000 * ord(layer) + token).any())
                   for token in range(TOKENS - 1) for layer, cache in self.caches.items())


class Scheduler(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = os.path.join(te.Workdir.get(), "model")
        os.makedirs(cls.model, exist_ok=True)
        with open(os.path.join(cls.model, "config.json"), "w", encoding="ascii") as f:
            json.dump(MODEL, f)

    ahead = False

    def side(self, policy="fail"):
        side = Side(self.model, policy, self.ahead)
        self.addCleanup(side.worker.shutdown)
        return side, side.free()

    def prefill(self, side, name="p", **more):
        side.add(name, {"do_remote_decode": True, "do_remote_prefill": False, **more}, tokens=1)
        side.until(lambda s: name in s.answers, "prefill's answer")
        return side.answers[name][1]

    def waits(self, side, name):
        return side.scheduler.requests[name].status.name == "WAITING_FOR_REMOTE_KVS"

    def early(self, side):
        return {"do_remote_prefill": True, "transfer_id": "k", "remote_ranks": [list(side.worker._worker.address)]}

    def test_a_request(self):
        """In chunks of 32 tokens; decode computes the last one, and answers. Both have all of their blocks again."""
        (prefill, all_of_it), (decode, _) = self.side(), self.side()
        params = self.prefill(prefill)
        self.assertLess(prefill.free(), all_of_it)
        decode.add("d", params)
        decode.until(lambda s: s.scheduler.requests["d"].status.name == "RUNNING", "what prefill writes")
        self.assertEqual(decode.wrong("d"), 0)
        decode.until(lambda s: "d" in s.answers, "the answer")
        self.assertEqual(decode.answers["d"][0], "length")
        for side in (prefill, decode):
            side.until(lambda s: s.free() == all_of_it, "all blocks")

    def test_aborts(self):
        """Of decode while it waits, and of prefill between two chunks; decode's request fails."""
        (prefill, all_of_it), (decode, _) = self.side(), self.side()
        from vllm.v1.request import RequestStatus
        decode.add("d", self.early(prefill))
        decode.step()
        self.assertTrue(self.waits(decode, "d"))
        decode.scheduler.finish_requests("d", RequestStatus.FINISHED_ABORTED)
        self.assertLess(decode.free(), all_of_it)
        decode.until(lambda s: s.free() == all_of_it, "all blocks")
        early = {**self.early(prefill), "transfer_id": "k3"}
        decode.add("d3", early)
        decode.step()
        prefill.add("p3", {"do_remote_decode": True, "transfer_id": "k3"}, tokens=1)
        prefill.step()
        prefill.scheduler.finish_requests("p3", RequestStatus.FINISHED_ABORTED)
        decode.until(lambda s: prefill.step() and "d3" in s.answers, "the end")
        self.assertEqual(decode.answers["d3"][0], "error")
        decode.until(lambda s: s.free() == all_of_it, "all blocks")
        prefill.until(lambda s: "p3" not in s.scheduler.requests, "its end")

    def test_preempted(self):
        """Between two chunks, which are sent already: decode has what was computed anew."""
        (prefill, all_of_it), (decode, _) = self.side(), self.side()
        decode.add("d", self.early(prefill))
        decode.step()
        prefill.add("p", {"do_remote_decode": True, "transfer_id": "k"}, tokens=1)
        prefill.step()
        self.assertTrue(prefill.scheduler.reset_prefix_cache(reset_running_requests=True))
        prefill.until(lambda s: "p" in s.answers, "prefill's answer")
        decode.until(lambda s: not self.waits(s, "d"), "what prefill writes")
        self.assertEqual(decode.wrong("d"), 0)
        prefill.until(lambda s: s.free() == all_of_it, "all blocks")

    def test_lost(self):
        """Prefill has gone with a request: its blocks are kept, and it is computed here, in others. They are free when another one
        has prefill's name."""
        (prefill, _), (decode, all_of_it) = self.side(), self.side("recompute")
        decode.add("d", self.early(prefill))
        decode.until(lambda _: "k" in prefill.worker._worker._sender._early, "what decode asks")
        old = decode.ids("d")
        prefill.worker._worker._exchange.link.close()  # no word is said
        receiver = decode.worker._worker._receiver
        receiver.limits = receiver.limits._replace(lost=1, settle=0.2)
        decode.until(lambda s: "d" in s.answers, "the answer")
        self.assertEqual(decode.answers["d"][0], "length")
        self.assertEqual(decode.free(), all_of_it - len(old))
        self.assertFalse(decode.scheduler.reset_prefix_cache())
        name, _ = prefill.worker._worker.address
        import transfer_engine
        with transfer_engine.Engine(name="127.0.0.1", port=int(name.rpartition(":")[2])) as late:
            self.assertEqual(late.name, name)
            self.step_until_free(decode, all_of_it)
        self.assertTrue(decode.scheduler.reset_prefix_cache())

    def step_until_free(self, decode, all_of_it):
        """It is told with a step, whatever that is for."""
        for i in range(9999):
            decode.add(f"other{i}", None, tokens=1)
            decode.until(lambda s: f"other{i}" in s.answers, "an answer")  # pylint: disable=cell-var-from-loop
            if decode.free() == all_of_it:
                return

    def test_hostile_params(self):
        (decode, all_of_it), good = self.side(), {"do_remote_prefill": True, "transfer_id": "k", "remote_ranks": [["a", "b"]]}
        for i, more in enumerate(({"remote_ranks": None}, {"remote_ranks": [[]]}, {"transfer_id": 7}, {"remote_ranks": [["a", 1]]})):
            decode.add(f"d{i}", {**good, **more})
            decode.until(lambda s: f"d{i}" in s.answers, "the end")
            self.assertEqual(decode.answers[f"d{i}"][0], "error")
        self.assertEqual(decode.step().free(), all_of_it)


class Ahead(Scheduler):
    """The same where a step is scheduled before the one in front of it has run, which is vLLM's default."""
    ahead = True


if __name__ == "__main__":
    te.main()
