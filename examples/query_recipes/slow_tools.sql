/* Which tools are slow, and which fail? */
select name, count(*) as calls, sum(status = 'failed') as failed,
       round(avg(duration_ms)) as mean_ms, round(max(duration_ms)) as longest_ms
from tool_calls
group by name
order by mean_ms desc
