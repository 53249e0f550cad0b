-- About how many bytes jobs have, live or finished, by id. Uses job_pkey, finished_pkey.
SELECT job.id::text, octet_length(job.payload)
FROM rowlock.job AS job
WHERE job.id = ANY (:ids::uuid[])
UNION ALL
SELECT finished.id::text,
    octet_length(finished.payload) + coalesce(octet_length(finished.result), 0)
FROM rowlock.finished AS finished
WHERE finished.id = ANY (:ids::uuid[])
