-- How large the file is, in bytes, with what is not ours in it.
SELECT pages.page_count * sizes.page_size
FROM pragma_page_count() AS pages, pragma_page_size() AS sizes
