"""Golden files: generated text compared with stored files at a declared level, and the review of what differs.

The files in reading order:

    golden.py            the value of the fixture `golden`: compares, writes what the mode allows, and words a failure
    views.py             the views of a run: kernel, wrapper, plan, one stage, or what one stage changed
    golden_file.py       a golden file: its place, its header, reading and writing it
    skeleton.py          the level `skeleton`: what touches memory or threads, in order and nesting
    canonical.py         the level `canonical`: the text without layout, comments and local names
    line_diff.py         how two sequences of lines differ
    readable_diff.py     a difference in the golden's own names, so that renumbering is not shown
    failure_text.py      the text of a failing check
    disagreement.py      the result of one check, as plain values that travel on a test's report
    edit_clusters.py     differences of many goldens as few edits
    end_of_run.py        the end of a run: the edits, the report, the review in the terminal, unused files
    review.py            accepts edits, in the terminal or from a report
    report_page.py       report.html
    patch.py             golden.patch
    unused_goldens.py    files that no test uses any more
    base_revision.py     --golden-base: goldens that another revision generates

Data: a Run comes in; views.py makes a Text of it; golden.py compares it with the stored file, and notes a Check, with a
Disagreement if they differ. The report of the test carries the Checks to the process with the terminal, where
end_of_run.py turns them into edits, a page and a patch.
Laws: nothing is written under CI. A golden file has no paths, times, thread counts or hashes of the machine. A damaged
file is refused before anything of it is compared. Only a complete run may call a file unused.
"""
