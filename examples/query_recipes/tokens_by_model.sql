/* What did each model use, and how much of it per call? */
select model, count(*) as calls, sum(input_tokens) as input, sum(output_tokens) as output,
       sum(input_tokens + output_tokens) / count(*) as per_call
from model_calls
group by model
order by input + output desc
