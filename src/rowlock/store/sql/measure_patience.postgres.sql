-- Whether the commit of this transaction waits for the disk, or not; as it is set, if not lazily.
SELECT set_config(
    'synchronous_commit',
    CASE WHEN :lazily THEN 'off' ELSE current_setting('synchronous_commit') END,
    true
)
