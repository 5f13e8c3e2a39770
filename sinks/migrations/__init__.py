"""Numbered SQL files, applied in order once each. An applied file is never edited: add another."""
