"""Random legal configurations of every covered family, with every option that changes what Transformers computes.

`draw(seed, family)` gives a config.json, in one of the spellings that files have, and the keys for one of which it must be
refused: what they say is computed by no tool here, or by no program at all.
"""
import copy
import dataclasses
import json
import random

import transformers

# Longer than the windows and than some of the contexts.
SEQ = 20
VOCAB = 61

CLASSES = {"llama": "LlamaConfig", "mistral": "MistralConfig", "qwen2": "Qwen2Config", "qwen3": "Qwen3Config",
           "qwen3_moe": "Qwen3MoeConfig", "mixtral": "MixtralConfig", "deepseek_v2": "DeepseekV2Config",
           "deepseek_v3": "DeepseekV3Config", "olmoe": "OlmoeConfig", "olmo2": "Olmo2Config", "qwen2_moe": "Qwen2MoeConfig",
           "glm4_moe": "Glm4MoeConfig"}
LATENT = {"deepseek_v2", "deepseek_v3"}
# Experts as DeepSeek has them.
ROUTED = LATENT | {"glm4_moe"}
# Published with layers that predict further tokens.
FURTHER = {"deepseek_v3", "glm4_moe"}
# Families whose classes read a key; the others take it for one that is not theirs.
READS = {"attention_bias": {"llama", "qwen3", "qwen3_moe", "olmoe", "olmo2"} | ROUTED, "mlp_bias": {"llama", "deepseek_v2"},
         "layer_types": {"mistral", "qwen2", "qwen2_moe", "qwen3"}, "sliding_window": {"mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe"}}


# Keys that these classes alone read.
MIXTURES = ROUTED | {"qwen2_moe", "qwen3_moe", "mixtral", "olmoe"}
STRANGE_TO_OTHERS = {"n_shared_experts": ROUTED, "kv_lora_rank": LATENT, "first_k_dense_replace": ROUTED, "n_group": ROUTED,
                     "routed_scaling_factor": ROUTED, "mlp_only_layers": {"qwen2_moe", "qwen3_moe"},
                     "decoder_sparse_step": {"qwen2_moe", "qwen3_moe"}, "shared_expert_intermediate_size": {"qwen2_moe"},
                     "clip_qkv": {"olmoe"}, "num_experts": MIXTURES, "use_qk_norm": {"glm4_moe"}, "qkv_bias": {"qwen2_moe"}}


@dataclasses.dataclass
class Case:
    seed: int
    model_type: str
    config: dict
    # One of these keys must be refused; empty: the model must be understood.
    refusable: set = dataclasses.field(default_factory=set)
    # Whether config.json is left as Transformers writes it.
    as_saved: bool = False
    # How many layers that predict further tokens are published besides.
    further: int = 0

    @property
    def dtype(self):
        return self.config.get("dtype") or self.config.get("torch_dtype") or "float32"

    def __str__(self):
        return f"CKPT_TEST_SEED={self.seed}\n{json.dumps(self.config)}\nmust be refused for one of {sorted(self.refusable)}"


class Draw:
    def __init__(self, seed, model_type):
        self.rng = random.Random(f"{model_type} {seed}")
        self.family = model_type
        self.config = {"model_type": model_type}
        self.refusable = set()

    def one(self, *values):
        return self.rng.choice(values)

    def chance(self, share):
        return self.rng.random() < share

    def sizes(self):
        heads = self.one(2, 4)
        hidden = self.one(32, 48, 64)
        self.config |= {
            "architectures": [CLASSES[self.family].replace("Config", "ForCausalLM")],
            "vocab_size": VOCAB, "hidden_size": hidden, "intermediate_size": self.one(20, 48), "num_hidden_layers": self.one(2, 3, 4),
            "num_attention_heads": heads, "num_key_value_heads": self.one(*[n for n in (1, 2, 4) if heads % n == 0]),
            "max_position_embeddings": self.one(8, 32, 64), "rms_norm_eps": self.one(1e-6, 1e-5, 1e-3, 0.1),
            "initializer_range": 0.2, "tie_word_embeddings": self.chance(0.3), "bos_token_id": 1, "eos_token_id": 2,
            self.one("dtype", "torch_dtype"): self.one("float32", "float32", "bfloat16", "float16")}
        if self.family not in LATENT | {"olmoe"} and self.chance(0.6):
            self.config["head_dim"] = self.one(8, 10, 16)
        if self.family in ("qwen3", "qwen3_moe"):
            self.config.setdefault("head_dim", hidden // heads)
        self.config["hidden_act"] = self.one("silu", "silu", "silu", "silu", "silu", "swish", "swish", "gelu", "relu")
        if self.config["hidden_act"] in ("gelu", "relu"):
            self.refusable.add("hidden_act")

    def biases(self):
        for key in "attention_bias", "mlp_bias":
            if self.chance(0.35 if self.family in READS[key] else 0.05):
                self.config[key] = True

    def leaves_a_bias(self):
        """Of shared experts that have no other element: nothing but Transformers has such a thing."""
        has_experts = self.config.get("first_k_dense_replace", 0) < self.config["num_hidden_layers"]
        return self.config.get("n_shared_experts") == 0 and self.config.get("mlp_bias", False) and \
            self.family in READS["mlp_bias"] and has_experts

    def windows(self):
        layers = self.config["num_hidden_layers"]
        window = self.one(None, 1, 3, 4, 9, 100, 3, 4, 9, 0)
        if self.family in ("mistral", "mixtral"):
            self.config["sliding_window"] = window
        elif self.family.startswith("qwen"):
            self.config |= {"use_sliding_window": self.chance(0.7), "sliding_window": window}
            if self.family != "qwen3_moe" or self.chance(0.3):
                self.config["max_window_layers"] = self.one(0, 1, 2, 28)
        elif self.chance(0.05):
            self.config["sliding_window"] = window
        slides = self.config.get("sliding_window") is not None and self.config.get("use_sliding_window", True)
        reads = self.family in READS["layer_types"]
        if window == 0 and slides and self.family in READS["sliding_window"]:
            self.refusable.add("sliding_window")  # Transformers has no mask for it
        if self.chance(0.4 if reads else 0.1):
            kinds = ["full_attention", "sliding_attention"] if slides else ["full_attention"]
            self.config["layer_types"] = [self.one(*kinds) for _ in range(layers)]
            # The others have one kind of layer, and a list that says so is fine.
            kind = "sliding_attention" if slides and self.family in ("mixtral", "qwen3_moe") else "full_attention"
            if not reads and set(self.config["layer_types"]) != {kind}:
                self.refusable.add("layer_types")

    def rope(self):
        head = self.config.get("qk_rope_head_dim") or self.config.get("head_dim") or \
            self.config["hidden_size"] // self.config["num_attention_heads"]
        length = self.config["max_position_embeddings"]
        kind = self.one(*["default"] * 3, *["linear"] * 2, *["yarn"] * 3, *["llama3"] * 2, "dynamic", "longrope")
        rope = {"rope_type": kind}
        if self.chance(0.8):
            rope["rope_theta"] = self.one(100.0, 10000.0, 500000.0, 1000000, 0.5)
        if kind in ("linear", "dynamic", "llama3"):
            rope["factor"] = self.one(2.0, 4, 8.0)
        if kind == "yarn":
            rope["factor"] = self.one(1.0, 2.0, 4, 40.0)
            if self.chance(0.2):
                rope["factor"] = None
            for key, values in {"beta_fast": (32, 16.0), "beta_slow": (1, 2), "attention_factor": (0.7, 1.3), "mscale": (1.0, 0.707, 0),
                                "mscale_all_dim": (1.0, 0.707, 0), "truncate": (True, False)}.items():
                if self.chance(0.35):
                    rope[key] = self.one(*values)
            if rope["factor"] is None:
                rope.pop("mscale_all_dim", None)  # DeepSeek's attention cannot do without the factor
        if kind == "llama3":
            rope |= {"low_freq_factor": self.one(1, 1.0, 0.5), "high_freq_factor": self.one(4, 4.0, 2.0)}
            rope.setdefault("rope_theta", 10000.0)
        if kind == "longrope":
            rope |= {name: [round(self.rng.uniform(1, 4), 2) for _ in range(head // 2)] for name in ("short_factor", "long_factor")}
        if kind in ("yarn", "llama3", "longrope"):
            rope["original_max_position_embeddings"] = self.one(8, 16, length)
        if kind in ("dynamic", "longrope"):
            self.refusable |= {"rope_type", "type"}
        if self.family == "glm4_moe":
            share = self.one(0.25, 0.5, 0.5, 0.75, 1.0, None)
            if share is not None:
                rope["partial_rotary_factor"] = share
            if head * (share or 0.5) % 2:
                self.refusable.add("partial_rotary_factor")
        # Classes that read it in no other way rotate all of a head.
        elif kind == "default" and self.chance(0.1):
            rope["partial_rotary_factor"] = self.one(0.5, 1.0)
            if rope["partial_rotary_factor"] != 1.0:
                self.refusable.add("partial_rotary_factor")
        self.config["rope_parameters"] = rope

    def experts(self):
        count = self.one(4, 6, 8)
        self.config |= {"num_experts_per_tok": self.one(1, 2, 3), "output_router_logits": self.chance(0.2)}
        if self.family == "mixtral":
            self.config["num_local_experts"] = count
            return
        if self.family == "olmoe":
            self.config |= {"num_experts": count, "norm_topk_prob": self.chance(0.5), "clip_qkv": self.one(None, None, 0.5)}
            if self.config["clip_qkv"] is not None:
                self.refusable.add("clip_qkv")
            return
        self.config["moe_intermediate_size"] = self.one(10, 18)
        if self.family in ("qwen2_moe", "qwen3_moe"):
            self.config |= {"num_experts": count, "norm_topk_prob": self.chance(0.5), "decoder_sparse_step": self.one(1, 1, 2),
                            "mlp_only_layers": self.one([], [], [0], [1])}
            if self.family == "qwen2_moe":
                self.config |= {"shared_expert_intermediate_size": self.one(12, 20), "qkv_bias": self.one(True, True, False)}
            return
        count = 8
        groups = self.one(1, 2, 4)
        self.config |= {"n_routed_experts": count, "n_shared_experts": self.one(0, 1, 1, 2), "first_k_dense_replace": self.one(0, 1, 1, 9),
                        "n_group": groups, "topk_group": self.one(*range(1, groups + 1)), "routed_scaling_factor": self.one(1.0, 1.5, 2.5)}
        self.config["num_experts_per_tok"] = self.one(*range(1, min(6, count // groups * self.config["topk_group"]) + 1))
        if self.family == "glm4_moe":
            self.config |= {"norm_topk_prob": self.chance(0.7), "use_qk_norm": self.chance(0.5), "num_nextn_predict_layers": self.one(0, 1)}
            self.of_no_class("topk_method", "noaux_tc", "greedy")
            self.of_no_class("scoring_func", "sigmoid", "softmax")
        elif self.family == "deepseek_v2":
            self.config["topk_method"] = self.one("greedy", "group_limited_greedy", "group_limited_greedy")
            self.config["norm_topk_prob"] = self.chance(0.15)
            self.of_no_class("scoring_func", "softmax", "sigmoid")
            if self.config["norm_topk_prob"]:
                self.refusable.add("norm_topk_prob")
        else:
            self.config["norm_topk_prob"] = self.chance(0.7)
            self.of_no_class("topk_method", "noaux_tc", "greedy")
            self.of_no_class("scoring_func", "sigmoid", "softmax")
            if self.chance(0.4):
                self.config["rope_interleave"] = self.chance(0.5)

    def strange(self):
        """Keys of other families, or of other code for this one: the class reads none of them."""
        for key, value in {"moe_layer_freq": 2, "shared_expert_intermediate_size": 24, "n_shared_experts": 1, "kv_lora_rank": 8,
                           "first_k_dense_replace": 1, "mlp_only_layers": [0], "decoder_sparse_step": 2, "n_group": 2,
                           "routed_scaling_factor": 2.5, "clip_qkv": 0.1, "num_experts": 4, "use_qk_norm": True, "qkv_bias": True}.items():
            if key not in self.config and self.family not in STRANGE_TO_OTHERS.get(key, ()) and self.chance(0.05):
                self.config[key] = value

    def of_no_class(self, key, computed, other):
        """A key that DeepSeek's own files have and that the class does not read: it computes one of the values."""
        if self.chance(0.3):
            self.config[key] = computed if self.chance(0.8) else other
            if self.config[key] == other:
                self.refusable.add(key)

    def last_layer_is_like_the_next(self):
        """Megatron makes layers that predict further tokens of the last one's kind."""
        return self.config.get("first_k_dense_replace", -1) not in (-1, self.config["num_hidden_layers"])

    def latent(self):
        self.config |= {"q_lora_rank": self.one(None, 12, 16), "kv_lora_rank": self.one(12, 16), "qk_nope_head_dim": self.one(6, 8),
                        "qk_rope_head_dim": self.one(4, 6, 8), "v_head_dim": self.one(6, 8, 10)}
        self.config["num_key_value_heads"] = self.config["num_attention_heads"]

    def spell(self):
        """Files of Transformers 5 have `rope_parameters`, older ones `rope_theta` beside `rope_scaling`."""
        config = self.config
        rope = config["rope_parameters"]
        if self.chance(0.5):
            del config["rope_parameters"]
            for key in "rope_theta", "partial_rotary_factor":
                if key in rope and self.chance(0.8):
                    config[key] = rope.pop(key)
            if self.chance(0.5):
                rope["type"] = rope.pop("rope_type")
            if rope.get("rope_type", rope.get("type")) != "default" or len(rope) > 1:
                config["rope_scaling"] = rope
            elif self.chance(0.5):
                config["rope_scaling"] = None
        if self.chance(0.3):
            defaults = {field.name: field.default for field in dataclasses.fields(getattr(transformers, CLASSES[self.family]))}
            for key in [k for k in config if k in defaults and config[k] == defaults[k]]:
                del config[key]
        if self.chance(0.2):
            config["num_key_value_heads"] = config["num_attention_heads"]


def draw(seed, model_type):
    d = Draw(seed, model_type)
    d.sizes()
    if model_type in LATENT:
        d.latent()
    if model_type in MIXTURES:
        d.experts()
    d.biases()
    if d.leaves_a_bias():
        d.refusable.add("n_shared_experts")
    d.windows()
    d.rope()
    d.strange()
    d.spell()
    as_saved = d.chance(0.25)
    further = d.one(0, 1, 2) if model_type in FURTHER and d.last_layer_is_like_the_next() else 0
    return Case(seed, model_type, copy.deepcopy(d.config), d.refusable, as_saved, further)
