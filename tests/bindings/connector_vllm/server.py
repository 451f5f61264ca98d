# SPDX-License-Identifier: Apache-2.0
"""A server of the test: what vLLM's scheduler and worker do with a connector, in their order, without a model.

Its cache holds bytes that follow from the prompt, the layer and the token. serve() runs in a process of its own and
does what comes through a pipe.
"""
import types

import memory
import standin
import te_proc as te

BLOCK, WIDTH, BLOCKS = 4, 24, 40  # tokens of a block, bytes of a token in one part, blocks of a cache


def groups(*kinds, block=BLOCK):
    """A KVCacheConfig with a group of each kind."""
    specs = [kind() for kind in kinds]
    for spec in specs:
        spec.block_size = block
    made = [types.SimpleNamespace(kv_cache_spec=spec, host_resident=False) for spec in specs]
    return types.SimpleNamespace(kv_cache_groups=made, num_blocks=BLOCKS)


def config(extra, rank=0, cache_dtype="auto", role="kv_both", **parallel):
    """A VllmConfig, as far as the connector looks at one."""
    seconds = {f"{name}_s": 3600 for name in ("hold", "lease", "lost", "write", "fence", "settle")}
    options = {"host": "127.0.0.1", "peers": ["127.0.0.1"], **seconds, **extra}
    sizes = {f"{kind}_parallel_size": 1 for kind in ("tensor", "pipeline", "data", "prefill_context", "decode_context")}
    return types.SimpleNamespace(
        kv_transfer_config=types.SimpleNamespace(engine_id="e", kv_connector_extra_config=options, kv_role=role),
        parallel_config=types.SimpleNamespace(**{"rank": rank, "use_ubatching": False, **sizes, **parallel}),
        model_config=types.SimpleNamespace(model="a model", revision=None),
        cache_config=types.SimpleNamespace(cache_dtype=cache_dtype))


def digest(prompt):
    """That of what the connector takes for this prompt."""
    from transfer_engine_vllm._prompt import prompt as of
    return of(Request("a", prompt, 1, None)).digest


class Request:
    def __init__(self, name, prompt, tokens, params):
        self.request_id, self.prompt, self.num_prompt_tokens, self.kv_transfer_params = name, prompt, tokens, params
        self.prompt_token_ids, self.lora_request = [len(prompt), *prompt.encode()], None
        self.blocks, self.computed, self.state, self.status = [], 0, "waiting", None
        self.preempted = False


class Blocks:
    def __init__(self, ids):
        self.ids = ids

    def get_block_ids(self):
        return (list(self.ids),)


class Pool:
    """vLLM's of blocks: each is free when nobody refers to it."""

    def __init__(self, count):
        self.blocks = [types.SimpleNamespace(block_id=i, ref_cnt=0) for i in range(count)]

    def free(self):
        return [block.block_id for block in self.blocks if not block.ref_cnt]

    def take(self, count):
        ids = self.free()[:count]
        self.touch([self.blocks[i] for i in ids])
        return ids

    def touch(self, blocks):
        for block in blocks:
            block.ref_cnt += 1

    def free_blocks(self, blocks):
        self.give([block.block_id for block in blocks])

    def give(self, ids):
        for i in ids:
            assert self.blocks[i].ref_cnt > 0, f"block {i} is given back twice"
            self.blocks[i].ref_cnt -= 1


class Server:
    def __init__(self, layers=3, layout="apart", block=BLOCK, extra=None, torch=False, workers=1, dtype="auto", role="kv_both",
                 port=0, at=0):
        """With `at` its cache has that address, if it can be had."""
        from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
        from transfer_engine_vllm import TransferEngineConnector
        from vllm.v1.kv_cache_interface import FullAttentionSpec
        self.block, caches = block, groups(FullAttentionSpec, block=block)
        configs = [config({**(extra or {}), "port": port}, rank, dtype, role, tensor_parallel_size=workers) for rank in range(workers)]
        self.scheduler = TransferEngineConnector(configs[0], KVConnectorRole.SCHEDULER, caches)
        self.workers = [TransferEngineConnector(each, KVConnectorRole.WORKER, caches) for each in configs]
        self.names = [f"layer.{i}" for i in range(layers)]
        self.caches = {}  # of all workers: those of the first one by the names of the layers
        for rank, worker in enumerate(self.workers):
            shard = dict(zip(self.names, memory.fixed(at, layers, (2, BLOCKS, block, WIDTH)) if at else self.made(layout, layers, torch)))
            worker.register_kv_caches(shard)
            self.caches.update({self.name(layer, rank): cache for layer, cache in shard.items()})
        self.scheduler.set_xfer_handshake_metadata({i: w.get_handshake_metadata() for i, w in enumerate(self.workers)})
        self.pool = Pool(BLOCKS)
        self.scheduler.bind_gpu_block_pool(self.pool)
        self.exchange = self.workers[0]._worker._exchange
        self.sender, self.receiver = self.exchange.sender, self.exchange.receiver
        self.requests, self.ended, self.preempted = {}, set(), set()
        self.outcomes, self.partly, self.failed = {}, {}, set()
        self.planned = []  # steps that are scheduled and not run
        self.forward = None  # what is left of a step that has stopped between two layers

    def name(self, layer, rank):
        return layer if rank == 0 else f"{layer}@{rank}"

    # ---------------------------------------------------------------------------------- the cache

    def made(self, layout, layers, torch):
        """Keys and values apart, or both within a block, or blocks of all layers between each other."""
        if layout == "between":
            whole = memory.cache((BLOCKS, layers, 2, self.block, WIDTH), torch)
            return [whole[:, i] for i in range(layers)]
        shape = (2, BLOCKS, self.block, WIDTH) if layout == "apart" else (BLOCKS, 2, self.block, WIDTH)
        return [memory.cache(shape, torch) for _ in range(layers)]

    def places(self, layer, block):
        """Where the two parts of a block are."""
        cache = self.caches[layer]
        part, step = cache.stride()[:2] if cache.shape[0] == 2 else reversed(cache.stride()[:2])
        return [cache.data_ptr() + block * step + i * part for i in (0, 1)]

    def compute(self, request, layer, begin, end):
        for token in range(begin, end):
            where = self.places(layer, request.blocks[token // self.block])
            for part, at in enumerate(where):
                memory.put(at + token % self.block * WIDTH, memory.noise((request.prompt, layer, part, token), WIDTH))

    def wrong(self, name, layers=None, begin=0):
        """How many tokens of a request are not what they ought to be, from `begin` on."""
        request, count = self.requests[name], 0
        for layer in layers or self.caches:
            for token in range(begin, request.num_prompt_tokens):
                for part, at in enumerate(self.places(layer, request.blocks[token // self.block])):
                    got = memory.get(at + token % self.block * WIDTH, WIDTH)
                    count += got != memory.noise((request.prompt, layer, part, token), WIDTH)
        return count

    def fill(self, blocks, byte):
        for layer in self.caches:
            for block in blocks:
                for at in self.places(layer, block):
                    memory.put(at, bytes([byte]) * (self.block * WIDTH))

    def untouched(self, blocks, byte):
        whole = bytes([byte]) * (self.block * WIDTH)
        return all(memory.get(at, len(whole)) == whole
                   for layer in self.caches for block in blocks for at in self.places(layer, block))

    # ------------------------------------------------------------------------------- the scheduler

    def add(self, name, prompt, tokens, params, cached=0):
        """A request, the first `cached` tokens of which this side has."""
        request = self.requests[name] = Request(name, prompt, tokens, params)
        request.computed = cached

    def allocate(self, name):
        """Asks the connector, and gives blocks: how many tokens come from elsewhere."""
        request = self.requests[name]
        matched, later = self.scheduler.get_num_new_matched_tokens(request, request.computed)
        needed = -(-request.num_prompt_tokens // self.block)
        request.blocks = self.pool.take(needed)
        self.scheduler.update_state_after_alloc(request, Blocks(request.blocks), matched)
        request.state = "remote" if later else "new"
        return matched

    def preempt(self, name):
        """Its blocks go to whoever wants them, and it gets others."""
        request = self.requests[name]
        old = request.blocks
        request.blocks = self.pool.take(len(old))
        self.pool.give(old)
        request.computed, request.preempted = 0, True
        self.preempted.add(name)
        return old

    def finish(self, name, status="FINISHED_LENGTH_CAPPED"):
        """(whether the blocks are kept, what decode is asked with)"""
        from vllm.v1.request import RequestStatus
        request = self.requests[name]
        receives = request.state == "remote" and name not in self.outcomes
        request.status = RequestStatus[status]
        kept, params = self.scheduler.request_finished(request, list(request.blocks))
        request.state = "finished"
        self.ended.add(name)
        if not (kept or receives):
            self.release(name)
        return kept, params

    def abort(self, name):
        return self.finish(name, "FINISHED_ABORTED")

    def release(self, name):
        self.pool.give(self.requests[name].blocks)
        self.outcomes[name] = self.outcomes.get(name, "released")

    def output(self, scheduled):
        from vllm.v1.core.sched.output import CachedRequestData, NewRequestData, SchedulerOutput
        new, cached = [], CachedRequestData(req_ids=[], resumed_req_ids=set(), new_block_ids=[], num_computed_tokens=[])
        for name, tokens in scheduled.items():
            request = self.requests[name]
            if request.state == "new":
                new.append(NewRequestData(req_id=name, block_ids=(list(request.blocks),),
                                          num_computed_tokens=request.computed))
            else:
                cached.req_ids.append(name)
                cached.num_computed_tokens.append(request.computed)
                cached.new_block_ids.append((list(request.blocks),) if request.preempted else None)
                if request.preempted:
                    cached.resumed_req_ids.add(name)
            request.computed, request.state, request.preempted = request.computed + tokens, "running", False
        ended, self.ended = self.ended, set()
        preempted, self.preempted = self.preempted, set()
        return SchedulerOutput(scheduled_new_reqs=new, scheduled_cached_reqs=cached, num_scheduled_tokens=dict(scheduled),
                               finished_req_ids=ended, preempted_req_ids=preempted)

    # ------------------------------------------------------------------------------------ the steps

    def schedule(self, scheduled=None):
        """A step that computes so many tokens of requests. With asynchronous scheduling others are run between."""
        begins = [(self.requests[name], self.requests[name].computed, tokens) for name, tokens in (scheduled or {}).items()]
        output = self.output(scheduled or {})
        self.planned.append((begins, output, self.scheduler.build_connector_meta(output)))

    def step(self, scheduled=None, stop=0):
        """Schedules one and runs it, up to behind `stop` layers if that is not 0."""
        self.schedule(scheduled)
        return self.run(stop)

    def run(self, stop=0):
        """The oldest that is scheduled."""
        begins, output, told = self.planned.pop(0)
        for worker in self.workers:
            worker.handle_preemptions(told)
            worker.bind_connector_metadata(told)
        self.forward = self.layers(begins, output)
        for _ in range(stop):
            next(self.forward)
        return None if stop else self.go_on()

    def layers(self, begins, output):
        for layer in self.names if begins else ():
            for rank, worker in enumerate(self.workers):
                for request, begin, tokens in begins:
                    self.compute(request, self.name(layer, rank), begin, begin + tokens)
                worker.wait_for_layer_load(layer)
                worker.save_kv_layer(layer, self.caches[self.name(layer, rank)], None)
            yield
        self.end(output.finished_req_ids)

    def go_on(self):
        for _ in self.forward:
            pass
        return self.outcomes

    def raise_in_step(self):
        """The step that has stopped between two layers raises: vLLM waits for what is saved even then."""
        try:
            raise RuntimeError("a layer")
        except RuntimeError:
            self.end(set())

    def drop_step(self):
        """The same under vLLM's model runner V2, which calls nothing then."""
        self.forward = None

    def end(self, finished):
        """As vLLM puts together what its workers tell: what all of them have told is so."""
        from vllm.v1.outputs import KVConnectorOutput
        told, sent, received, failed = None, set(), set(), set()
        for worker in self.workers:
            worker.start_load_kv(None)
            worker.wait_for_save()
            results = worker.get_transfer_results(finished)
            meta = worker.build_connector_worker_meta()
            told = meta if told is None else told if meta is None else told.aggregate(meta)
            worker.clear_connector_metadata()
            self.failed |= results.failed_recving
            for names, all_of_them in ((results.finished_sending, sent), (results.finished_recving, received)):
                for name in names:
                    self.partly[name] = self.partly.get(name, 0) + 1
                    if self.partly[name] == len(self.workers):
                        all_of_them.add(name)
                        del self.partly[name]
        failed = self.failed & received
        self.failed -= failed
        self.scheduler.update_connector_output(KVConnectorOutput(
            finished_sending=sent, finished_recving=received, failed_recving=failed, kv_connector_worker_meta=told))
        for name in received:
            assert name not in self.outcomes and self.requests[name].state in ("remote", "finished"), name
            self.outcomes[name] = "failed" if name in failed else "received"
        for name in sent:
            assert self.requests[name].state == "finished" and name not in self.outcomes, name
            self.outcomes[name] = "sent"
        for name in sent | received:
            if self.requests[name].state == "finished":
                self.release(name)

    def waits(self):
        return self.scheduler.has_pending_push_work()

    def blocks(self, name):
        return self.requests[name].blocks

    def ranks(self):
        return [list(worker.get_handshake_metadata().address) for worker in self.workers]

    def count_free(self):
        return len(self.pool.free())

    # --------------------------------------------------------------------------- looks into the connector

    def limit(self, **seconds):
        """From now on: so that nothing before depends on how fast this machine is."""
        for side in (self.sender, self.receiver):
            side.limits = side.limits._replace(**seconds)

    def under_way(self):
        """A WRITE that has begun and not ended."""
        return any(sending.batch is not None for sending in self.sender._sendings.values())

    def queued(self):
        """Something is to be sent."""
        return any(sending.pieces or sending.queued or sending.busy for sending in self.sender._sendings.values())

    def fencing(self):
        """A WRITE that has ended and is not known to be over at the peer."""
        with self.exchange.lock:
            return bool(self.sender._doubts.all())

    def asked(self, key):
        """Prefill knows of a want."""
        with self.exchange.lock:
            return self.sender._known(key)[1] is not None

    def shout(self, peer, kind, body):
        """A message that is none of the connector's own."""
        self.greet(peer)
        self.exchange.link.say(tuple(peer), kind, body)

    def greet(self, peer):
        def welcome():
            self.exchange.link.talk(tuple(peer), lambda: [], lambda _: None)
            return self.exchange.link.greetings.cookie_of(tuple(peer))
        return te.until(welcome, "a welcome")

    def mute(self):
        """It takes messages, and says nothing to any of them."""
        self.exchange.link._take = lambda *_: None

    def overdue(self):
        """All that is asked for is as old as its lease, whatever the clock says."""
        with self.exchange.lock:
            for receiving in self.receiver._receivings.values():
                receiving.since -= self.receiver.limits.lease + 1
            for sending in self.sender._sendings.values():
                sending.since -= self.sender.limits.lease + 1

    def shout_text(self, session, text):
        with self.exchange.link.engine.open(session) as segment:
            segment.notify("transfer-engine-connector", text)

    def answers(self):
        """What was told to wants, by their tokens."""
        with self.exchange.lock:
            late = {doubt.want.token: "unsafe" for doubt in self.sender._doubts.all() if doubt.late}
            return {token: end for peer in self.sender._wants._peers.values() for token, end in peer.ends.items()} | late

    def tokens(self):
        """Of the receiver's requests."""
        with self.exchange.lock:
            return list(self.receiver._receivings)

    def states(self):
        """How the receiver's requests stand."""
        with self.exchange.lock:
            return {receiving.owner: receiving.state.name for receiving in self.receiver._receivings.values()}

    def opened(self):
        """The names that this server talks to, or has talked to a moment ago."""
        with self.exchange.link.lanes._changed:
            return sorted({to[0] for _, to in self.exchange.link.lanes._lanes})

    def close(self):
        for worker in self.workers:
            worker.shutdown()
        self.workers = []


def serve(pipe, path):
    standin.install(path)
    from transfer_engine_vllm import _worker
    _worker.close_s = lambda: te.HANG_S
    standin.serve(pipe, Server)
