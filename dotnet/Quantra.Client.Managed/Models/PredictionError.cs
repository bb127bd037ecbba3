using System.Globalization;

namespace Quantra.Client.Managed;

/// <summary>Creates the errors of requests, with the reasons and messages of every predictor.</summary>
internal static class PredictionError
{
    private const int MostListed = 5;

    public static QuantraError Bars(string message, params ReadOnlySpan<(string Name, string Value)> metadata) =>
        Of(QuantraStatus.InvalidArgument, QuantraReason.BarsInvalid, message, metadata);

    /// <summary>The error for one cell that breaks a rule.</summary>
    public static QuantraError BarsAt(string symbol, int session, string field, double value, string rule)
    {
        var day = Day.Show(session);
        return Bars(
            $"{symbol} {day}: {field} is {NumberText.General(value)}, but {rule}",
            ("symbol", symbol),
            ("date", day),
            ("field", field),
            ("value", NumberText.Exact(value)));
    }

    public static QuantraError TooFewBars(string symbol, int have, int need, string what, int best) => Of(
        QuantraStatus.InvalidArgument,
        QuantraReason.TooFewBars,
        Invariant($"{symbol}: have {have} {what}, need {need}; send earlier bars too, ideally {best} sessions"),
        ("symbol", symbol),
        ("have", Text(have)),
        ("need", Text(need)));

    public static QuantraError NoUsableSymbol(string message) => Of(QuantraStatus.InvalidArgument, QuantraReason.NoUsableSymbol, message);

    public static QuantraError Malformed(string message, params ReadOnlySpan<(string Name, string Value)> metadata) =>
        Of(QuantraStatus.InvalidArgument, QuantraReason.MalformedRequest, message, metadata);

    public static QuantraError BarIncomplete(string day) => Of(
        QuantraStatus.FailedPrecondition,
        QuantraReason.BarIncomplete,
        $"the session of {day} has not closed yet, so its bar has no close; leave it out, or set allow_incomplete_last_bar",
        ("date", day));

    public static QuantraError SessionGap(string message, string missing, int count) =>
        Of(QuantraStatus.FailedPrecondition, QuantraReason.SessionGap, message, ("missing", missing), ("count", Text(count)));

    public static QuantraError CalendarEnded(string message, params ReadOnlySpan<(string Name, string Value)> metadata) =>
        Of(QuantraStatus.FailedPrecondition, QuantraReason.CalendarEnded, message, metadata);

    public static QuantraError BarSuspect(string message, params ReadOnlySpan<(string Name, string Value)> metadata) =>
        Of(QuantraStatus.FailedPrecondition, QuantraReason.BarSuspect, message, metadata);

    public static QuantraError Covariates(string message, params ReadOnlySpan<(string Name, string Value)> metadata) =>
        Of(QuantraStatus.InvalidArgument, QuantraReason.CovariatesInvalid, message, metadata);

    public static QuantraError CovariateMissing(string message, params ReadOnlySpan<(string Name, string Value)> metadata) =>
        Of(QuantraStatus.InvalidArgument, QuantraReason.CovariateMissing, message, metadata);

    public static QuantraError UnknownCovariate(string name, string message) =>
        Of(QuantraStatus.InvalidArgument, QuantraReason.UnknownCovariate, message, ("covariate", name));

    /// <summary>Lists the first few names and the number of the others.</summary>
    public static string Listed(IReadOnlyList<string> names, int count = 0)
    {
        var more = Math.Max(names.Count, count) - MostListed;
        return string.Join(", ", names.Take(MostListed)) + (more > 0 ? Invariant($" and {more} more") : "");
    }

    public static QuantraError Of(QuantraStatus code, string reason, string message, params ReadOnlySpan<(string Name, string Value)> metadata)
    {
        var values = new Dictionary<string, string>(metadata.Length);
        foreach (var (name, value) in metadata)
            values.Add(name, value);
        return new QuantraError(code, reason, message, values);
    }

    private static string Text(int number) => number.ToString(CultureInfo.InvariantCulture);

    private static string Invariant(FormattableString text) => FormattableString.Invariant(text);
}
