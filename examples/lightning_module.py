"""A LightningModule: V-MCR² in training, the nearest subspace in validation, checkpoints that continue.

    pip install lightning
    python examples/lightning_module.py

The loss is a part of the module. So Lightning moves it to the device, switches it to eval mode in validation (where its
dictionary stands still), and saves its dictionary and codes, and the classifier's subspaces, in every checkpoint. It
prints the accuracy on test digits, and that of a module that was read back from the checkpoint.
"""

from __future__ import annotations

import tempfile
from typing import Any

import lightning
import torch
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import vmcr2


class RateReduction(lightning.LightningModule):
    """A network whose features fall into subspaces, one for each class."""

    def __init__(self, dim: int = 64) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, dim))
        self.loss = vmcr2.VMCR2Loss(10, dim, atoms_per_class=dim // 10)
        self.classifier = vmcr2.NearestSubspace(num_classes=10)

    def forward(self, images: Tensor) -> Tensor:
        """Features of length 1."""
        return nn.functional.normalize(self.network(images), dim=1)

    def training_step(self, batch: list[Tensor]) -> Tensor:
        """One call of the loss for each step of the optimiser: leave accumulate_grad_batches at 1."""
        value: Tensor = self.loss(self.network(batch[0]), batch[1])
        return value

    def on_validation_epoch_start(self) -> None:
        """Subspaces of the training images' features as they are now; those of an earlier epoch are out of date."""
        self.classifier = vmcr2.NearestSubspace(num_classes=10)
        for images, labels in self.trainer.train_dataloader or []:
            self.classifier.partial_fit(self(images.to(self.device)), labels.to(self.device))

    def validation_step(self, batch: list[Tensor]) -> None:
        """The accuracy of the nearest subspace."""
        right = self.classifier.predict(self(batch[0])) == batch[1]
        self.log("accuracy", right.float().mean(), batch_size=len(right))

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """The network's weights: the loss has none."""
        return torch.optim.AdamW(self.parameters(), lr=2e-3)


def main(seed: int = 0, epochs: int = 12) -> tuple[float, float]:
    """The accuracy on test digits, and that of the module read back from the checkpoint."""
    lightning.seed_everything(seed, verbose=False)
    images, labels = (torch.tensor(array) for array in load_digits(return_X_y=True))
    train, test = (TensorDataset(images[part].float() / 16, labels[part]) for part in (slice(1200), slice(1200, None)))
    silent: dict[str, Any] = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)
    trainer = lightning.Trainer(max_epochs=epochs, num_sanity_val_steps=0, enable_checkpointing=False, **silent)
    trainer.fit(RateReduction(), DataLoader(train, 128, shuffle=True), DataLoader(test, 256))
    accuracy = float(trainer.callback_metrics["accuracy"])
    with tempfile.TemporaryDirectory() as folder:
        trainer.save_checkpoint(f"{folder}/last.ckpt")
        copy = RateReduction.load_from_checkpoint(f"{folder}/last.ckpt").eval().cpu()
    again = float((copy.classifier.predict(copy(test.tensors[0])) == test.tensors[1]).double().mean())
    print(f"accuracy {accuracy:.4f}, read back {again:.4f}")
    return accuracy, again


if __name__ == "__main__":
    main()
