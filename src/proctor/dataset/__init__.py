"""Datasets: samples, and how to read them from files."""

from __future__ import annotations

from proctor.dataset.dataset import Dataset, MemoryDataset
from proctor.dataset.fields import FieldSpec, RecordToSample
from proctor.dataset.huggingface import hf_dataset
from proctor.dataset.readers import csv_dataset, file_dataset, json_dataset
from proctor.dataset.sample import Sample

__all__ = [
    "Dataset",
    "FieldSpec",
    "MemoryDataset",
    "RecordToSample",
    "Sample",
    "csv_dataset",
    "file_dataset",
    "hf_dataset",
    "json_dataset",
]
