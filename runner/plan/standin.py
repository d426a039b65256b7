# Stands in for a submission in a control run, which finds out whether the task
# works: its custom_kernel is the task's own solution, or does nothing where the
# task has none. It marks how far it got with empty files.
import os


def _mark(step, done=set()):
    if step not in done:
        done.add(step)
        try:
            open(os.path.join(os.environ["TMPDIR"], "kbrun-" + step), "w").close()
        except OSError:
            pass


def _solution():
    try:
        import reference
    except ModuleNotFoundError as err:
        if err.name == "reference":
            return None  # the task has none
        raise
    return getattr(reference, "ref_kernel", None)


def custom_kernel(*args, **kwargs):
    _mark("called")
    solution = _solution()
    if solution is None:
        return None
    _mark("solution")
    answer = solution(*args, **kwargs)
    _mark("answered")
    return answer


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def nothing(*args, **kwargs):
        _mark("called")

    return nothing
