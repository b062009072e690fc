"""Train a text classifier with the Trainer of transformers and the Correctness Ranking Loss.

    python examples/transformers_trainer.py [FOLDER]
    torchrun --nproc-per-node 2 examples/transformers_trainer.py [FOLDER]

A small BERT that starts from random weights learns to tell praise from blame in made-up reviews; nothing is
downloaded. Several processes share the batches, and their results equal those of one process. Writes the network and
the history to FOLDER (default: reviews). Takes half a minute on a CPU.

Expected output:

    ...
    ok: 800 samples...
    accuracy 0..., AURC 0..., ECE 0...
"""

import os
import random
import sys
from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification, TrainingArguments, set_seed

from confrank import CorrectnessHistory, CorrectnessRankingLoss, SharedRing
from confrank.adapters.transformers import RankingTrainer, confidence_metrics

EPOCHS, BATCH_SIZE = 5, 32  # of all processes together
PRAISE, BLAME = ("great", "lovely", "funny", "moving"), ("dull", "awful", "boring", "flat")
OTHER = ("the", "film", "plot", "cast", "was", "is", "and", "but", "a", "very")
WORDS = {word: number for number, word in enumerate((*PRAISE, *BLAME, *OTHER))}


def reviews(number: int, seed: int) -> list[dict[str, Any]]:
    """Reviews of eight words. The label says whether praise outweighs blame; every tenth label is wrong."""
    draw, rows = random.Random(seed), []
    for position in range(number):
        words = draw.choices([*WORDS], k=8)
        praise = sum((word in PRAISE) - (word in BLAME) for word in words)
        label = int(praise > 0) if position % 10 else int(praise <= 0)
        rows.append({"input_ids": [WORDS[word] for word in words], "labels": label})
    return rows


def make_model() -> BertForSequenceClassification:
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    # Without dropout, of which each process has its own draws, the number of processes changes rounding only.
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return BertForSequenceClassification(
        BertConfig(vocab_size=len(WORDS), max_position_embeddings=8, num_labels=2, **sizes, **rates)
    )


def main(folder: str = "reviews") -> None:
    set_seed(0)
    on_gpu = torch.cuda.is_available()
    train_set, validation_set = reviews(800, seed=0), reviews(301, seed=1)
    num_processes = int(os.environ.get("WORLD_SIZE", "1"))  # torchrun sets it
    settings = TrainingArguments(
        folder,
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=BATCH_SIZE // num_processes,
        learning_rate=3e-3,
        use_cpu=not on_gpu,  # several processes on CPUs would each train alone without it
        dataloader_pin_memory=on_gpu,
        ddp_find_unused_parameters=False,
        save_strategy="epoch",
        save_total_limit=1,
        report_to=[],
        logging_strategy="no",
        disable_tqdm=True,
    )
    history = CorrectnessHistory(len(train_set))
    trainer = RankingTrainer(
        make_model(),
        settings,
        train_dataset=train_set,
        eval_dataset=validation_set,
        compute_metrics=confidence_metrics,
        criterion=CorrectnessRankingLoss(history, ring=SharedRing()),
    )
    trainer.train()  # after an interruption: trainer.train(resume_from_checkpoint=True)
    trainer.save_model()
    metrics = trainer.evaluate()
    if trainer.is_world_process_zero():
        print(history.audit(epochs=EPOCHS))
        names = ("accuracy", "acc"), ("AURC", "aurc"), ("ECE", "ece")
        print(", ".join(f"{name} {metrics[f'eval_{key}']:.3f}" for name, key in names))


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)  # on CPUs, torch 2.13 may abort a process that is done, and torchrun would report a failure
