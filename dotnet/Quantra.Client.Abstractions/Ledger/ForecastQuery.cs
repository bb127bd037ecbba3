using System.Globalization;

namespace Quantra.Client;

/// <summary>Which forecasts of a ledger to list. Each property narrows the selection.</summary>
public sealed record ForecastQuery
{
    private readonly int? _newest;

    /// <summary>"NAME" or "NAME@VERSION"; null = all models.</summary>
    public ModelReference? Model { get; init; }

    /// <summary>The symbol; null = all symbols.</summary>
    public string? Symbol { get; init; }

    /// <summary>First session of the last bar; null = any.</summary>
    public DateOnly? First { get; init; }

    /// <summary>Last session of the last bar; null = any.</summary>
    public DateOnly? Last { get; init; }

    /// <summary>The roles; empty = all.</summary>
    public IReadOnlyList<ForecastRole> Roles { get; init; } = [];

    /// <summary>How many of the newest forecasts to list; null = all.</summary>
    /// <value>Positive.</value>
    public int? Newest
    {
        get => _newest;
        init
        {
            if (value is { } count)
                ArgumentOutOfRangeException.ThrowIfLessThan(count, 1, nameof(value));
            _newest = value;
        }
    }

    /// <inheritdoc/>
    public bool Equals(ForecastQuery? other) => other is not null && ValueEquality.AreEqual(Parts(), other.Parts());

    /// <inheritdoc/>
    public override int GetHashCode() => ValueEquality.Hash(Parts());

    /// <summary>Formats one line, the same in every culture.</summary>
    /// <returns>For example "forecasts of small@1 for AAPL since 2013-03-01 as Champion, the newest 20".</returns>
    public override string ToString()
    {
        var (model, symbol) = (Model is null ? "" : $" of {Model}", Symbol is null ? "" : $" for {Symbol}");
        var first = First is { } from ? string.Create(CultureInfo.InvariantCulture, $" since {from:yyyy-MM-dd}") : "";
        var last = Last is { } until ? string.Create(CultureInfo.InvariantCulture, $" until {until:yyyy-MM-dd}") : "";
        var roles = Roles.Count == 0 ? "" : $" as {string.Join(", ", Roles)}";
        return FormattableString.Invariant($"forecasts{model}{symbol}{first}{last}{roles}{(Newest is null ? "" : $", the newest {Newest}")}");
    }

    private object?[] Parts() =>
    [
        Model,
        Symbol,
        First,
        Last,
        ValueEquality.Of(Roles),
        Newest,
    ];
}
