"""llama.cpp as a library (pip install llama-cpp-python): one of compare.py's peers."""

import ctypes
import math
import time

import llama_cpp
import numpy as np

import peer


class Context:
    """One llama.cpp context; settings are {threads, ubatch, flash, unified, batch}."""

    def __init__(self, model, settings, tokens, sequences=1):
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx = tokens * sequences
        parameters.n_batch = settings.get("batch", max(tokens, sequences))
        parameters.n_ubatch = settings["ubatch"]
        parameters.n_seq_max = sequences
        parameters.n_threads = settings["threads"]
        parameters.n_threads_batch = settings["threads"]
        if hasattr(parameters, "flash_attn_type"):
            parameters.flash_attn_type = 1 if settings["flash"] else 0
        else:
            parameters.flash_attn = settings["flash"]
        if hasattr(parameters, "kv_unified"):
            parameters.kv_unified = settings.get("unified", sequences == 1)
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
        self.context = llama_cpp.llama_init_from_model(model, parameters)
        if not self.context:
            raise RuntimeError(f"llama.cpp refuses {settings}")

    def close(self):
        llama_cpp.llama_free(self.context)

    def clear(self):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)

    def decode(self, rows):
        """rows: (token, position, sequence, wants logits)."""
        batch = llama_cpp.llama_batch_init(len(rows), 0, 1)
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, logits) in enumerate(rows):
            batch.token[i] = token
            batch.pos[i] = position
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = sequence
            batch.logits[i] = logits
        failed = llama_cpp.llama_decode(self.context, batch)
        llama_cpp.llama_synchronize(self.context)
        llama_cpp.llama_batch_free(batch)
        if failed:
            raise RuntimeError("llama_decode failed")

    def prompt(self, ids, sequence=0):
        last = len(ids) - 1
        self.decode([(token, i, sequence, i == last) for i, token in enumerate(ids)])

    def prefill_rate(self, ids):
        self.clear()
        started = time.perf_counter()
        self.prompt(ids)
        return len(ids) / (time.perf_counter() - started)

    def generation_rate(self, prompt, following, sequences=1):
        """Tokens per second of all sequences; each has its own id and the same prompt."""
        self.clear()
        for sequence in range(sequences):
            self.prompt(prompt, sequence)
        started = time.perf_counter()
        for i, token in enumerate(following):
            position = len(prompt) + i
            self.decode([(token, position, sequence, True) for sequence in range(sequences)])
        return sequences * len(following) / (time.perf_counter() - started)

    def window_losses(self, window):
        """-log p of the tokens in the window's second half."""
        self.clear()
        half = len(window) // 2
        self.decode([(token, i, 0, i >= half) for i, token in enumerate(window)])
        losses = []
        for i in range(half, len(window) - 1):
            row = llama_cpp.llama_get_logits_ith(self.context, i)
            logits = np.ctypeslib.as_array(row, (self.vocabulary,)).astype(np.float64)
            top = logits.max()
            losses.append(top + math.log(np.exp(logits - top).sum()) - logits[window[i + 1]])
        return losses


class LibraryPeer:
    def __init__(self, arguments):
        self.arguments = arguments
        self.log = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self.log, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(
            str(arguments.model).encode(), llama_cpp.llama_model_default_params())
        if not self.model:
            raise RuntimeError(f"llama.cpp cannot read {arguments.model}")
        self.name = f"llama-cpp-python {llama_cpp.__version__}"
        self.flags = llama_cpp.llama_print_system_info().decode().strip()
        self.ids = self.tokenize(arguments.text.read_text(encoding="utf-8"))
        self.contexts = {}

    def tokenize(self, text):
        vocabulary = llama_cpp.llama_model_get_vocab(self.model)
        data = text.encode("utf-8")[:1 << 22]
        data = data.decode("utf-8", errors="ignore").encode("utf-8")
        room = len(data) + 16
        ids = (llama_cpp.llama_token * room)()
        return list(ids[:llama_cpp.llama_tokenize(vocabulary, data, len(data), ids, room, True,
                                                  False)])

    def measure(self, test, context):
        a = self.arguments
        if test == "prefill":
            return context.prefill_rate(self.ids[:a.prompt])
        following = self.ids[a.depth:]
        if test == "generation":
            return context.generation_rate(self.ids[:a.depth], following[:a.generate])
        return context.generation_rate(self.ids[:a.depth], following[:a.batch_steps], a.batch)

    def open(self, test, settings):
        a = self.arguments
        tokens = {"prefill": a.prompt, "generation": a.depth + a.generate,
                  "batch": a.depth + a.batch_steps}[test]
        return Context(self.model, settings, tokens + 64, a.batch if test == "batch" else 1)

    def choices(self, test):
        choices = peer.choices(test, self.arguments)
        if test == "batch":
            choices["unified"] = [True, False]
        return choices

    def rate(self, test, settings):
        context = self.open(test, settings)
        try:
            return max(self.measure(test, context) for _ in range(2))
        finally:
            context.close()

    def use(self, test, settings):
        self.contexts[test] = self.open(test, settings)
        self.measure(test, self.contexts[test])  # warm-up

    def run(self, test):
        return self.measure(test, self.contexts[test])

    def perplexity(self, windows, size):
        vocabulary = llama_cpp.llama_model_get_vocab(self.model)
        bos = llama_cpp.llama_vocab_bos(vocabulary)
        add_bos = llama_cpp.llama_vocab_get_add_bos(vocabulary)
        context = Context(self.model, {"threads": peer.cores(), "ubatch": size,
                                       "flash": False}, size)
        losses = []
        for number in range(windows):
            part = self.ids[number * size:(number + 1) * size]
            losses += context.window_losses([bos, *part[1:]] if add_bos else part)
        context.close()
        return math.exp(sum(losses) / len(losses))
