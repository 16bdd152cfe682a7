"""The small tokenizer of the tiny model: byte-level BPE over the built-in tasks, digits apart, one token a word."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

EOS = "<|endoftext|>"
MASK = "<|mdm_mask|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ '<|endoftext|>' }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)

#: In this order: a newline with its indent, a letter inside a quoted string, a digit, list punctuation, an operator
#: with its blanks, a word with the blank before it, anything else.
PIECES = "|".join(
    (
        r"\n *",
        r'"{3}',
        r"\[::-1\]",
        r"[A-Za-z](?=[A-Za-z]*')",
        r"\d",
        r'\["',
        r'", "',
        r'"\]',
        r"\], ",
        r" [-+*/%=<>!]+ ",
        r", ",
        r"#+ ",
        r" ?[A-Za-z]+",
        r" ?[^\sA-Za-z0-9]",
        r" +",
    )
)


def build(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Train on `texts`. The id of EOS, which also pads, is 0 and that of the mask is 1."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[EOS, MASK, *ROLES],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=EOS,
        pad_token=EOS,
        mask_token=MASK,
        additional_special_tokens=list(ROLES),
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=4096,
    )
