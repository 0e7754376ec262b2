"""A rank's part of Megatron's model, and where the rank saves it. Import megatron_core first."""
import sys

from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel, gpt_layer_specs

peer = sys.modules["megatron_core"]


def build(args, stage, stages):
    """The part of the model that this rank has as number `stage` of `stages` in an interleaved pipeline."""
    peer.prepare_parts(args)
    config = peer.config_of(args)
    virtual = {} if stages == 1 else {"vp_stage": stage}
    spec = gpt_layer_specs.get_gpt_decoder_block_spec(
        config, use_transformer_engine=False,
        **peer.only(gpt_layer_specs.get_gpt_decoder_block_spec, normalization=args.normalization), **virtual)
    first = parallel_state.is_pipeline_first_stage(ignore_virtual=True) and stage == 0
    last = parallel_state.is_pipeline_last_stage(ignore_virtual=True) and stage == stages - 1
    return GPTModel(config=config, transformer_layer_spec=spec, mtp_block_spec=peer.further_spec(config, spec, **virtual), vocab_size=args.padded_vocab_size,
                    max_sequence_length=args.max_position_embeddings, position_embedding_type="rope", pre_process=first,
                    post_process=last, share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights,
                    **virtual).to(config.params_dtype)


def directory():
    """As Megatron-LM's get_checkpoint_name."""
    name = f"mp_rank_{parallel_state.get_tensor_model_parallel_rank():02d}"
    if parallel_state.get_pipeline_model_parallel_world_size() > 1:
        name += f"_{parallel_state.get_pipeline_model_parallel_rank():03d}"
    if parallel_state.get_expert_model_parallel_world_size() > 1:
        name += f"_{parallel_state.get_expert_model_parallel_rank():03d}"
    return name
