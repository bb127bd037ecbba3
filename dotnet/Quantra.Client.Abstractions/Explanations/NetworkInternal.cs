using System.Globalization;

namespace Quantra.Client;

/// <summary>A network's own weights, such as attention, in computing one number of a forecast.</summary>
/// <remarks>They are not contributions and do not say what moved the forecast; <see cref="Attribution.Table"/> does.</remarks>
/// <param name="Name">Such as "attention"; for a member of an ensemble, preceded by the member's name.</param>
/// <param name="Axis">What the labels are.</param>
/// <param name="Labels">L names, or distances from the last bar's session, which <see cref="Attribution.Shares"/> puts into words.</param>
/// <param name="Values">[S, L] shares that add up to 1, row-major; NaN = no forecast for this symbol.</param>
public sealed record NetworkInternal(string Name, InternalAxis Axis, IReadOnlyList<string> Labels, ReadOnlyMemory<double> Values)
{
    /// <inheritdoc/>
    public bool Equals(NetworkInternal? other) => other is not null && ByValue.Same(Parts(), other.Parts());

    /// <inheritdoc/>
    public override int GetHashCode() => ByValue.Hash(Parts());

    /// <summary>One line, the same in every culture.</summary>
    /// <returns>Such as "attention over 65 sessions".</returns>
    public override string ToString()
    {
        var noun = Axis switch { InternalAxis.Inputs => "input", InternalAxis.Sessions => "session", _ => "label" };
        return $"{Name} over {Listed.Count(Labels.Count, noun)}";
    }

    /// <summary>One label in words, such as "26 sessions before the last" for the session "-26".</summary>
    internal string InWords(int place)
    {
        var label = Labels[place];
        if (Axis != InternalAxis.Sessions || !int.TryParse(label, NumberStyles.AllowLeadingSign, CultureInfo.InvariantCulture, out var offset))
            return label;
        var count = Listed.Count(Math.Abs(offset), "session");
        return offset == 0 ? "last session" : $"{count} {(offset < 0 ? "before" : "after")} the last";
    }

    private object?[] Parts() =>
    [
        Name,
        Axis,
        ByValue.Of(Labels),
        ByValue.Of(Values),
    ];
}
