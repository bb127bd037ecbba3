namespace Quantra.Client.Managed;

/// <summary>Explains many instances of one model together.</summary>
internal static class GlobalExplanation
{
    private const int MostInstances = 4096;

    /// <summary>Approximate number of reports; each repeats all rows.</summary>
    private const int MostReports = 100;

    /// <summary>Errors that every further instance would have, too.</summary>
    private static readonly string[] QueryErrors =
    [
        QuantraReason.ArtifactInvalid,
        QuantraReason.DeadlineExceeded,
        QuantraReason.ExplainUnsupported,
        QuantraReason.UnknownHorizon,
        QuantraReason.UnknownQuantile,
    ];

    /// <summary>Returns a report after one or several instances, and after the last one. Counts those that cannot be explained, with their reasons.</summary>
    /// <exception cref="QuantraException">The request is invalid, or the call takes too long.</exception>
    public static IEnumerable<GlobalExplanationProgress> Run(IForecastModel model, GlobalExplanationRequest request, DateTimeOffset now, CallLimit limit)
    {
        ExplanationQuery.CheckCount("instances", request.Instances.Count, MostInstances);
        ExplanationQuery.CheckNumbers(request.Targets.Count, request.Tolerance);
        var (total, tally) = (request.Instances.Count, new ImportanceTally(model, request.Instances.Count));
        for (var done = 1; done <= total; done++)
        {
            limit.Check();
            var single = new ManyExplanationsRequest(request.Instances[done - 1], request.Targets) { Method = request.Method, Tolerance = request.Tolerance };
            try
            {
                tally.Add(model.Explain(single, now, limit));
            }
            catch (QuantraException error) when (!QueryErrors.Contains(error.Reason, StringComparer.Ordinal))
            {
                tally.Refuse(error.Error);
            }

            if (done == total || done % ((total + MostReports - 1) / MostReports) == 0)
                yield return tally.Report();
        }
    }
}
