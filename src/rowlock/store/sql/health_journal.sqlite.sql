-- How the file keeps its log.
SELECT journal_mode
FROM pragma_journal_mode
