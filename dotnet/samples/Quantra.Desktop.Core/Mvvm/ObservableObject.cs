using System.ComponentModel;
using System.Runtime.CompilerServices;

namespace Quantra.Desktop.Mvvm;

/// <summary>Base class of objects that notify a view of property changes.</summary>
public abstract class ObservableObject : INotifyPropertyChanged
{
    /// <inheritdoc/>
    public event PropertyChangedEventHandler? PropertyChanged;

    /// <summary>Sets the field of a property and raises PropertyChanged if the value differs.</summary>
    /// <returns>Whether the value differs.</returns>
    protected bool Set<T>(ref T field, T value, [CallerMemberName] string property = "")
    {
        if (EqualityComparer<T>.Default.Equals(field, value))
            return false;
        field = value;
        OnPropertyChanged(property);
        return true;
    }

    /// <summary>Raises PropertyChanged for a computed property.</summary>
    protected void OnPropertyChanged(string property) => PropertyChanged?.Invoke(this, new PropertyChangedEventArgs(property));
}
