using System.Globalization;

namespace Quantra.Client;

/// <summary>What happened after one horizon of a forecast. After bars were revised, there is a second outcome.</summary>
/// <param name="Horizon">Trading days ahead.</param>
/// <param name="Session">Session on which the horizon ends.</param>
/// <param name="Revision">0 = the first outcome, which counts as evidence.</param>
/// <param name="Status">Whether there is a value.</param>
/// <param name="Value">In the target's unit; null = unscorable.</param>
/// <param name="Reason">Why it is unscorable; "" = it is scored.</param>
/// <param name="Pinball">Mean pinball loss over the quantiles, in the target's unit; null = unscorable.</param>
/// <param name="IsInside">Whether the value lies between the lowest and the highest quantile; null = unscorable.</param>
/// <param name="Level">Level of the value in the forecast distribution, from 0 to 1; null = unscorable.</param>
public sealed record RecordedOutcome(
    int Horizon,
    DateOnly Session,
    int Revision,
    OutcomeStatus Status,
    double? Value,
    string Reason,
    double? Pinball,
    bool? IsInside,
    double? Level)
{
    /// <summary>Formats one line, the same in every culture.</summary>
    /// <returns>For example "5 days, 2013-03-08: 0.012, inside", or "5 days, 2013-03-08: no bar on this day".</returns>
    public override string ToString()
    {
        var value = Value is null ? Reason : FormattableString.Invariant($"{Value}{(IsInside switch { true => ", inside", false => ", outside", _ => "" })}");
        return string.Create(CultureInfo.InvariantCulture, $"{MessageFormat.Count(Horizon, "day")}, {Session:yyyy-MM-dd}: {value}");
    }
}
