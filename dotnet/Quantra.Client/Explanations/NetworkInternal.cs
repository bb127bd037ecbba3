using System.Globalization;

namespace Quantra.Client;

/// <summary>Weights of a network's own, such as attention: what it turned to on the way to one number of a forecast.</summary>
/// <remarks>They are no contributions and say nothing of what moved the forecast; <see cref="Attribution.Table"/> does.</remarks>
/// <param name="Name">Such as "attention"; that of an ensemble's member has the member's name in front.</param>
/// <param name="Axis">What the labels are.</param>
/// <param name="Labels">L names, or distances from the last bar's session; <see cref="Attribution.Shares"/> puts these into words.</param>
/// <param name="Values">[S, L] shares that add up to 1, row-major; NaN = no forecast for this symbol.</param>
public sealed record NetworkInternal(string Name, InternalAxis Axis, IReadOnlyList<string> Labels, ReadOnlyMemory<double> Values)
{
    /// <summary>One label as people read it, such as "26 sessions before the last" for the session "-26".</summary>
    internal string InWords(int place)
    {
        var label = Labels[place];
        if (Axis != InternalAxis.Sessions || !int.TryParse(label, NumberStyles.AllowLeadingSign, CultureInfo.InvariantCulture, out var offset))
            return label;
        var count = FormattableString.Invariant($"{Math.Abs(offset)} session{(Math.Abs(offset) == 1 ? "" : "s")}");
        return offset == 0 ? "last session" : $"{count} {(offset < 0 ? "before" : "after")} the last";
    }
}
