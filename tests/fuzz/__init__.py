"""Fuzzing of everything that reads files or requests of strangers.

One file for each reader: ``seeds()`` are inputs that it accepts, ``run(data, folder)`` reads one input, and
``DOCUMENTED`` are the errors that it may raise. Anything else is a defect.

    PYTHONPATH=.:tests python -m fuzz                      the quick profile, all readers; no atheris needed
    PYTHONPATH=.:tests python -m fuzz idx --runs 100000    the long one, of one reader; needs the extra fuzz (atheris)
"""
