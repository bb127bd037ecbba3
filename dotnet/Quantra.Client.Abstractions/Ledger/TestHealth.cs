using System.Globalization;

namespace Quantra.Client;

/// <summary>The newest result of one test of a model.</summary>
/// <param name="Monitor">What is tested, for example "coverage too few" or "skill against har@1".</param>
/// <param name="Horizon">Trading days ahead.</param>
/// <param name="Lamp">The result.</param>
/// <param name="Session">Session of the newest bar that it uses.</param>
/// <param name="Days">Number of days with outcomes.</param>
/// <param name="Share">Share of the outcomes between the lowest and the highest quantile; null = not a test of coverage.</param>
/// <param name="Promised">The share that the quantiles promise; null = not a test of coverage.</param>
/// <param name="StateJson">All numbers of the test as JSON.</param>
public sealed record TestHealth(
    string Monitor,
    int Horizon,
    Lamp Lamp,
    DateOnly Session,
    int Days,
    double? Share,
    double? Promised,
    string StateJson)
{
    /// <summary>Formats one line, the same in every culture.</summary>
    /// <returns>For example "coverage too few at 5 days: Green until 2013-03-08".</returns>
    public override string ToString() => string.Create(
        CultureInfo.InvariantCulture, $"{Monitor} at {MessageFormat.Count(Horizon, "day")}: {Lamp} until {Session:yyyy-MM-dd}");
}
