import threading

import pytest
import torch

from mmb._threads import one_ahead, one_thread


def test_items_are_made_ahead_in_order():
    made = []

    def items():
        for item in range(4):
            made.append(threading.current_thread())
            yield item

    with one_ahead(items()) as fetched:
        assert list(fetched) == [0, 1, 2, 3]
    assert threading.current_thread() not in made
    assert len(set(made)) == 1


def test_an_error_comes_in_its_turn_and_no_thread_is_left():
    before = threading.active_count()
    with one_ahead(1 / number for number in (1, 2, 0)) as fetched:
        assert next(fetched) == 1
        assert next(fetched) == 0.5
        with pytest.raises(ZeroDivisionError):
            next(fetched)
    with one_ahead(range(100)) as numbers:
        assert next(numbers) == 0  # and no more of them
    assert threading.active_count() == before


def test_torch_gets_its_threads_back():
    before = torch.get_num_threads()
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before
